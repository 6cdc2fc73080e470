package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/mrm"
)

// TestTraceConfig: a file of mrm-trace is taken as it is, and what has no counterpart is named once.
func TestTraceConfig(t *testing.T) {
	for _, command := range []string{"validate", "plan"} {
		cmd := self("mrm", command, "--config", "examples/mrm/mrm-trace.yaml")
		var out, notes bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join("..", ".."), &out, &notes
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "16 cells") {
			t.Errorf("%s: %v\n%s%s", command, err, out.String(), notes.String())
		}
		for _, key := range []string{"perf_mem.ldlat_threshold", "analyser.metrics", "sweep.warmup_runs"} {
			if n := strings.Count(notes.String(), key); n != 1 {
				t.Errorf("%s: %s is named %d times", command, key, n)
			}
		}
	}
}

// TestMRMErrors: wrong use of mrm ends with the documented exit status, and the message names what is at fault.
func TestMRMErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wrong := write("wrong.yaml", "workload: {prompts: a}\nkv: {block: 3}\n")
	good := write("good.yaml", "workload: {prompts: a}\noutput: {dir: "+dir+"/out}\n")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "validate, plan, run"},
		{"valdate", 2, `"mrm valdate" | "validate"`},
		{"run now", 2, `"now"`},
		{"validate --config " + dir + "/none.yaml", 2, "none.yaml | --config"},
		{"validate --config " + wrong, 2, `wrong.yaml:2:6 | "block" | block_tokens`},
		{"plan --config " + wrong, 2, "wrong.yaml:2:6"},
		{"run --config " + wrong, 2, "wrong.yaml:2:6"},
		{"validate --config " + good + " --cell 3", 2, "--cell"},
		{"run --config " + good + " --json", 2, "--json"},
		{"run --config " + good + " --cell -1", 2, "-1 | cells 0 to 2 | mrm plan"},
		{"plan --config " + good + " --image x", 2, "--image | --emit slurm or k8s"},
		{"plan --config " + good + " --emit pbs", 2, `--emit "pbs" | slurm, k8s`},
		{"plan --config " + good + " --emit k8s", 2, "--image | --claim"},
		{"plan --config " + good + " --emit slurm --dir here", 2, `"here" | --dir`},
	} {
		refused(t, strings.TrimSpace("mrm "+c.args), c.code, c.want)
	}
}

// TestMRMJobConfig: a job reads the configuration by its path from the folder in which it starts.
func TestMRMJobConfig(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	for _, c := range []struct{ dir, config, want string }{
		{here, "sub/e.yaml", "sub/e.yaml"},
		{here + "/sub", "sub/e.yaml", "e.yaml"},
		{filepath.Dir(here), "e.yaml", filepath.Base(here) + "/e.yaml"},
		{"/shared", "sub/e.yaml", "sub/e.yaml"},
		{here + "/sub", here + "/sub/e.yaml", here + "/sub/e.yaml"},
	} {
		if got := configFrom(c.dir, c.config); got != c.want {
			t.Errorf("%s from %s: %q, want %q", c.config, c.dir, got, c.want)
		}
	}
}

// TestMRMShow: a line per cell and one at the end, with a bar or without.
func TestMRMShow(t *testing.T) {
	cell := &mrm.Cell{Cell: memory.Cell{ModelID: "m", Prompt: "p0", NCtx: 256, KVType: "f16/q8_0"}}
	for _, bar := range []bool{false, true} {
		var out bytes.Buffer
		show := &mrmShow{out: &out}
		if bar {
			show.bar = func(of int) *progressbar.ProgressBar {
				return progressbar.NewOptions(of, progressbar.OptionSetWriter(&out))
			}
		}
		event := mrm.Event{Cell: cell, Number: 2, Of: 3, Text: "sealing", Left: 90 * time.Second}
		for kind := mrm.CellBegun; kind <= mrm.CellFailed; kind++ {
			event.Kind, event.Class, event.Why, event.Dir, event.Err = kind, memory.Marginal,
				"cpu_pct 12, clean is < 10", "results/m/run", errors.New("no reason")
			show.event(event)
		}
		show.end(mrm.Outcome{Sealed: []string{"a", "b"},
			Classes: map[memory.Class]int{memory.Clean: 1, memory.Marginal: 1}, Done: 4, Failed: 1})
		for _, want := range []string{
			"llamatap: [2/3] m/p0/c256/f16+q8_0/r0: marginal (cpu_pct 12, clean is < 10), 0s, results/m/run\n",
			"failed: no reason\n", "was removed, it had not been sealed\n",
			"another process runs it\n", "llamatap: 2 cells sealed, 1 clean, 1 marginal; 4 were before; 1 failed\n",
			"about 1m30s to go",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("bar %v: no %q in\n%s", bar, want, out.String())
			}
		}
	}
}
