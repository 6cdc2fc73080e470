//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/testenv"
)

const smallTest = `{"n_prompt":8,"n_gen":2,"n_batch":8,"n_ubatch":8,"n_threads":1,"type_k":"f16","type_v":"f16",` +
	`"flash_attn":"auto","n_gpu_layers":-1,"repetitions":1}`

// TestBenchMeasure runs a measuring process, plain and recorded: both print a subject and a repetition and nothing
// else on stdout.
func TestBenchMeasure(t *testing.T) {
	needLlama(t)
	out := t.TempDir()
	for name, args := range map[string][]string{
		"plain":    {"bench", "measure", smallTest},
		"recorded": {"bench", "measure", "--tap-tensors", "l_out*", "--tap-out", out, smallTest},
	} {
		cmd := self(args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, stderr.String())
		}
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"subject":`) ||
			!strings.HasPrefix(lines[1], `{"repetition":`) {
			t.Errorf("%s: %s", name, stdout.String())
		}
		sealed, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "manifest.json"))
		if name == "recorded" && len(sealed) != 1 {
			t.Errorf("sealed runs: %q", sealed)
		}
	}
}

func TestBenchWrongUse(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown benchmark": {"bench", "tab"},
		"must be positive":  {"bench", "tap", "-pairs", "0"},
		"usage: ":           {"bench", "measure"},
		"read what to":      {"bench", "measure", "{"},
		"unknown flag":      {"bench", "-p", "8", "-x"},
		"is neither a":      {"bench", "-p", "8-"},
		"unexpected":        {"bench", "-p", "8", "a"},
		"--dir":             {"bench", "--tap-out", "a"},
		"has its own tests": {"bench", "-f", "a", "-m", "b"},
		"read the script":   {"bench", "-f", "none.yaml"},
		"nothing to meas":   {"bench", "-p", "0", "-n", "0"},
		"name a file each":  {"bench", "--results", "a", "--resume", "b"},
	} {
		cmd := self(args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := status(t, cmd); got != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, %s", args, got, stderr.String())
		}
	}
}

// TestBenchTapRefused: what cannot be measured is refused before the table begins or a model is made.
func TestBenchTapRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"model /nonexist: no such file: check the path\n": {"-m", "/nonexist"},
		"no row is named nosuchrow: give a part":          {"-only", "nosuchrow"},
	} {
		dir := filepath.Join(t.TempDir(), "bench")
		cmd := self(append([]string{"bench", "tap", "--dir", dir}, args...)...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "llamatap: "+want) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: %s was made", args, dir)
		}
	}
}

// bench1 runs llamatap bench in a folder of its own and returns its streams and exit status.
func bench1(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := self(append([]string{"bench"}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	code = status(t, cmd)
	return out.String(), said.String(), code
}

// TestBench measures the embedded model with and without the tap, in every way that there are files for.
func TestBench(t *testing.T) {
	needLlama(t)
	dir := t.TempDir()
	tokens, results := filepath.Join(dir, "tokens"), filepath.Join(dir, "results")
	args := []string{"-p", "8", "-n", "3", "-t", "1", "-r", "2", "--tap-tensors", "l_out*", "--dir", dir, "-o", "json",
		"--per-token", tokens, "--resume", results}
	out, said, code := bench1(t, args...)
	if code != 0 {
		t.Fatalf("status %d: %s", code, said)
	}
	rows, err := bench.ReadRows(strings.NewReader(out))
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v: %s", len(rows), err, out)
	}
	for i, r := range rows {
		recorded := i%2 == 1
		if len(r.SamplesNS) != 2 || r.MedianTS == nil || *r.MedianTS <= 0 || (r.Gen == 3) != (r.TokenP50 != nil) ||
			(r.Prompt == 8) != (r.FirstNS != nil) {
			t.Errorf("row %d: %+v", i, r)
		}
		if recorded != (r.Captured != nil) || recorded && (*r.Captured == 0 || r.OwnNS == nil || *r.Lost != 0) {
			t.Errorf("row %d, recorded: %+v", i, r)
		}
		if r.BuildNumber == nil || r.Environment == nil {
			t.Errorf("row %d has no build or environment", i)
		}
	}
	checkTokens(t, tokens)
	left, err := filepath.Glob(filepath.Join(dir, "llamatap-bench-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	again, said, code := bench1(t, args...)
	if code != 0 || again != out {
		t.Errorf("resumed when all was done: status %d\n%s\n%s", code, said, again)
	}
}

// TestBenchStops gets Ctrl-C after the first visits: what they gave is printed, and how to go on.
func TestBenchStops(t *testing.T) {
	needLlama(t)
	results := filepath.Join(t.TempDir(), "results")
	slow := self("bench", "-p", "0", "-n", "2", "-t", "1", "-d", "0,4", "-r", "2", "--delay", "60", "-o", "csv",
		"--resume", results)
	var out, said bytes.Buffer
	slow.Stdout, slow.Stderr = &out, &said
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slow.Process.Kill() })
	testenv.Until(t, "a visit ends", func() bool {
		data, err := os.ReadFile(results)
		return err == nil && bytes.Count(data, []byte("\n")) >= 2
	})
	if err := slow.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := status(t, slow); code != 130 || strings.Count(out.String(), "\n") != 2 ||
		!strings.Contains(said.String(), "--resume "+results) {
		t.Errorf("status %d, %s\n%s", code, said.String(), out.String())
	}
}

// TestBenchCompare finds what is planted into a copy of a result.
func TestBenchCompare(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, each int64) string {
		row := bench.NewRow()
		row.Gen = 10
		for i := range int64(8) {
			row.SamplesNS = append(row.SamplesNS, each+i*each/200)
		}
		row.Summarise()
		var text bytes.Buffer
		if err := bench.WriteRows(&text, "json", []bench.Row{row}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, same, slow := write("old", 1e9), write("same", 1e9), write("slow", 1.1e9)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"compare", old, same}, 0, " ~ (p="},
		{[]string{"compare", old, slow}, 0, "-9.09% (p=0.000 n=8)"},
		{[]string{"compare", "--fail-if", "decode<0.97", old, same}, 0, ": passed"},
		{[]string{"compare", "--fail-if", "decode<0.97", old, slow}, 1, ": failed"},
		{[]string{"compare", "--fail-if", "prefill<0.97", old, slow}, 1, "-9.09%"},
		{[]string{"compare", old}, 2, ""},
		{[]string{"compare", old, dir}, 1, ""},
	} {
		out, said, code := bench1(t, c.args...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%q: status %d\n%s%s", c.args, code, out, said)
		}
	}
}

// checkTokens reads the rows per token of pp8 and tg3, each twice without and twice with the tap. What was captured
// of a token is a row of each layer's residual stream; of the prompt's last layer only the last row is computed.
func checkTokens(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const layers, rowBytes = 6, 256 * 4
	count := 0
	for decoder := json.NewDecoder(file); decoder.More(); count++ {
		var row bench.TokenRow
		if err := decoder.Decode(&row); err != nil {
			t.Fatal(err)
		}
		want := int64(layers * rowBytes)
		if row.Phase == bench.PhasePrefill {
			want = ((layers-1)*8 + 1) * rowBytes
		}
		if (row.Tap == "on") != (row.Captured != nil) || row.Captured != nil && *row.Captured != want {
			t.Errorf("captured: %+v, want %d", row, want)
		}
		if row.KVCells == 0 || row.MinorFaults == nil {
			t.Errorf("%+v", row)
		}
	}
	if want := 2 * 2 * (1 + 3); count != want {
		t.Errorf("%d rows per token, want %d", count, want)
	}
}
