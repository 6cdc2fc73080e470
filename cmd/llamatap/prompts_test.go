//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/runner"
	"github.com/llamatap/llamatap/store/rundir"
)

const shortPrompts = `{"id":1,"prompt":"func main() {","n_predict":6,"temperature":0}
{"id":2,"prompt":"package ","n_predict":3,"temperature":0}
{"id":3,"prompt":"import (","n_predict":5,"temperature":0}
{"id":4,"prompt":"// Read ","n_predict":4,"temperature":0}
`

// TestRunPromptsHostileLines: a line that would end the process, or take gigabytes, gets an error as its result,
// and the others run.
func TestRunPromptsHostileLines(t *testing.T) {
	needLlama(t)
	cmd := self("run", "--prompts", "-", "-t", "1")
	cmd.Stdin = strings.NewReader(`{"id":1,"prompt":"a","n_predict":2,"grammar":"root ::= ` +
		strings.Repeat("(", 200000) + `"}
{"id":2,"prompt":"a","n_predict":2,"dry_penalty_last_n":2000000000,"dry_multiplier":1}
{"id":3,"prompt":"a","n_predict":2,"repeat_last_n":2000000000}
{"id":4,"prompt":"a","n_predict":2,"n_predict":3}
{"id":5,"prompt":"a","n_predict":2,"grammar":"` + strings.Repeat(`r ::= r\n`, 20000) + `"}
{"id":6,"prompt":"a","n_predict":2,"temperature":0}
`)
	out, _ := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d results: %.500s", len(lines), out)
	}
	for i, line := range lines {
		if failed := strings.Contains(line, `"error":`); failed != (i < 5) {
			t.Errorf("%.300s", line)
		}
	}
	if used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; used > mostMemory {
		t.Errorf("%d MiB were taken", used>>10)
	}
}

// TestRunPromptsMaps: of several sequences, maps that cannot be recomputed are refused, also where the environment
// asks for them.
func TestRunPromptsMaps(t *testing.T) {
	const want = "-np 2 | --tap-attention | -np 1 | --tap-attention exact"
	refused(t, "run --prompts none.jsonl -np 2 --tap-attention", 2, want)
	refused(t, "run --prompts none.jsonl -np 2 -n 0 --tap-attention=keep --tap-tensor l_out*", 2, want)
	for _, line := range []string{"-np 2 --tap-attention exact", "-np 1 --tap-attention", "-n 0 --tap-attention"} {
		args := append(strings.Fields("run --prompts none.jsonl "+line), "--tap-out", t.TempDir())
		out, err := self(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "prompt --prompts none") {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	t.Setenv("LLAMATAP_ATTENTION", "keep")
	refused(t, "run --prompts none.jsonl -np 2 --tap-tensor l_out*", 2, want)
}

// TestRunPromptsInterrupted presses Ctrl-C after the first result: it is kept, and so is what there is of the one
// under way, if it had begun.
func TestRunPromptsInterrupted(t *testing.T) {
	needLlama(t)
	for try := range 5 {
		first, second, stderr := interruptedPrompts(t, time.Duration(try)*200*time.Millisecond)
		if !strings.Contains(first, `"finish":"length"`) || !strings.Contains(stderr, "interrupted: ") {
			t.Fatalf("%s%s\nstderr: %s", first, second, stderr)
		}
		if second == "" {
			continue // the second had not begun
		}
		if !strings.Contains(second, `"id":2,`) || !strings.Contains(second, `"finish":"interrupted"`) {
			t.Errorf("%s%s", first, second)
		}
		return
	}
	t.Error("the second prompt never began")
}

// interruptedPrompts interrupts two prompts some time after the first result. It returns the results and what was
// printed.
func interruptedPrompts(t *testing.T, after time.Duration) (first, second, printed string) {
	t.Helper()
	cmd := self("run", "--prompts", "-", "-c", "30000", "-t", "1")
	cmd.Stdin = strings.NewReader(`{"id":1,"prompt":"a","n_predict":2}` + "\n" +
		`{"id":2,"prompt":"a","ignore_eos":true}`)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout := bufio.NewReader(pipe)
	if first, err = stdout.ReadString('\n'); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	time.Sleep(after)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stdout)
	if err != nil {
		t.Fatal(err)
	}
	if got := status(t, cmd); got != 130 {
		t.Errorf("exit status %d: %s", got, stderr.String())
	}
	return first, string(rest), stderr.String()
}

func TestRunPromptsStatus(t *testing.T) {
	needLlama(t)
	cmd := self("run", "--prompts", "-", "-t", "1")
	cmd.Stdin = strings.NewReader(shortPrompts + "bad\n")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := status(t, cmd); got != 1 {
		t.Errorf("exit status %d", got)
	}
	if n := strings.Count(stdout.String(), "\n"); n != 5 ||
		!strings.Contains(stderr.String(), "line 5: no JSON object") ||
		!strings.HasSuffix(stderr.String(), "llamatap: 1 of 5 prompts failed\n") {
		t.Errorf("%s%s", stdout.String(), stderr.String())
	}
}

// TestRunPromptsUnderTap records prompts of several sequences: the tokens of the recording, by sequence and
// request, are those of the results.
func TestRunPromptsUnderTap(t *testing.T) {
	needLlama(t)
	dir := t.TempDir()
	prompts, results, capture := filepath.Join(dir, "p"), filepath.Join(dir, "r"), filepath.Join(dir, "run")
	if err := os.WriteFile(prompts, []byte(shortPrompts), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := self("run", "--prompts", prompts, "--results", results, "-np", "2", "-t", "1", "--tap-out", capture,
		"--tap-tensors", "l_out-0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := status(t, cmd); got != 0 {
		t.Fatalf("exit status %d: %s", got, stderr.String())
	}
	recorded := recordedTokens(t, capture)
	data, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for line := range bytes.Lines(data) {
		var a runner.Answer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		if a.Completion == nil || a.Request == nil {
			t.Fatalf("no request: %s", line)
		}
		got := recorded[[2]int32{int32(a.Sequence), *a.Request}]
		if want := a.Tokens[:len(a.Tokens)-1]; len(got) != a.PromptTokens+len(want) ||
			!slices.Equal(got[a.PromptTokens:], want) {
			t.Errorf("line %d: recorded as sequence %d, request %d: %d, generated %d", a.Line, a.Sequence, *a.Request,
				got, want)
		}
		requests++
	}
	if requests != 4 || len(recorded) != 4 {
		t.Errorf("%d results, %d recorded requests", requests, len(recorded))
	}
}

// recordedTokens are the tokens of the only run under dir, by sequence and request.
func recordedTokens(t *testing.T, dir string) map[[2]int32][]llama.Token {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*", rundir.TokensName))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v: %q", err, paths)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Tokens []rundir.TokenRecord }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	tokens := make(map[[2]int32][]llama.Token)
	for _, token := range file.Tokens {
		if token.Seq == nil || token.Request == nil {
			t.Fatalf("a token without a request: %+v", token)
		}
		at := [2]int32{*token.Seq, *token.Request}
		tokens[at] = append(tokens[at], llama.Token(token.ID))
	}
	return tokens
}
