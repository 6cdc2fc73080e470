package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/server"
)

// generator runs prompts of POST /log-monitoring: each by a llamatap run of its own, which records it.
type generator struct {
	dir, model string
	// starter runs functions on a thread that keeps the priority that this process began with, which children
	// inherit, and that lasts as long as the process, whose end it reports to its children.
	starter chan func()
	thread  int // its number
}

// newGenerator prepares to run prompts with a model, "" the embedded one, below a folder of runs. It must come
// before stepBack.
func newGenerator(dir, model string) *generator {
	g := &generator{dir: dir, model: model, starter: make(chan func())}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		g.thread = unix.Gettid()
		close(ready)
		for f := range g.starter {
			f()
		}
	}()
	<-ready
	return g
}

// promptLine is a line of a prompt file (docs/PROMPTS.md). What is nil is as llamatap run has it.
type promptLine struct {
	Prompt      string   `json:"prompt"`
	Predict     int      `json:"n_predict"`
	Temperature *float64 `json:"temperature,omitempty"`
	TopK        *int     `json:"top_k,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	MinP        *float64 `json:"min_p,omitempty"`
	Seed        *uint32  `json:"seed,omitempty"`
}

// lineOf writes a prompt as such a line. A method leaves the other samplers out, and has LRI's default of its
// own one.
func lineOf(p server.Prompt) promptLine {
	s := p.Sampling
	line := promptLine{Prompt: p.Prompt, Predict: p.MaxTokens, Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP,
		MinP: s.MinP, Seed: s.Seed}
	if line.Predict == 0 {
		line.Predict = 512
	}
	number := func(to **float64, otherwise float64) {
		if *to == nil {
			*to = &otherwise
		}
	}
	count := func(otherwise int) {
		if line.TopK == nil {
			line.TopK = &otherwise
		}
	}
	switch s.Method {
	case "greedy":
		zero := 0.0
		line.Temperature = &zero
		return line
	case "top_k":
		count(40)
		number(&line.TopP, 1)
	case "top_p":
		count(0)
		number(&line.TopP, 0.9)
	case "temperature":
		count(0)
		number(&line.TopP, 1)
	default:
		return line
	}
	number(&line.Temperature, 1)
	number(&line.MinP, 0)
	return line
}

// generate runs a prompt, as server.Options.Generate says.
func (g *generator) generate(ctx context.Context, p server.Prompt, began func(dir string)) (json.RawMessage, error) {
	self, err := llama.Self()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "llamatap-serve-") // mode 0700: prompts are nobody else's
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	text, err := json.Marshal(lineOf(p))
	if err != nil {
		return nil, err
	}
	prompts, results := filepath.Join(work, "prompts.jsonl"), filepath.Join(work, "results.jsonl")
	if err := os.WriteFile(prompts, append(text, '\n'), 0o600); err != nil {
		return nil, err
	}
	args := []string{"run", "--prompts", prompts, "--results", results, "--tap-resource-level", "DETAILED", "--tap-out",
		g.dir}
	if g.model != "" {
		args = append(args, "-m", g.model)
	}
	log, err := os.Create(filepath.Join(work, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr, cmd.Env = log, slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LLAMATAP_") || strings.HasPrefix(v, "LLAMA_RESOURCE_")
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it seals what there is
	cmd.WaitDelay = 10 * time.Second
	started := make(chan error)
	g.starter <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	found, err := g.follow(cmd.Process.Pid, ended, began)
	if dir := runInSummary(log.Name()); !found && dir != "" { // it ended before it was looked at
		began(dir)
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // a model whose collector was killed
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	result, failed := resultOf(results)
	switch {
	case failed != nil && err != nil:
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w: %.400s", err, lastLine(string(text)))
	case failed != nil:
		return nil, failed
	}
	return result, err
}

// follow waits for the end of a run, and reports its directory when its log has begun. found is whether it saw that.
func (g *generator) follow(pid int, ended <-chan error, began func(dir string)) (found bool, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if dir := runOf(pid, g.dir); !found && dir != "" && resources.HasLog(dir) {
			began(dir)
			found = true
			tick.Stop()
		}
		select {
		case err := <-ended:
			return found, err
		case <-tick.C:
		}
	}
}

// runOf is the run directory below a folder in which a process has a file open; "" before it has.
func runOf(pid int, below string) string {
	root, err := filepath.EvalSymlinks(below)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return ""
	}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		target, err := os.Readlink(file)
		if rest, ok := strings.CutPrefix(target, root+"/"); err == nil && ok {
			model, rest, _ := strings.Cut(rest, "/")
			if run, _, inside := strings.Cut(rest, "/"); inside && strings.HasPrefix(run, "run_") {
				return filepath.Join(below, model, run)
			}
		}
	}
	return ""
}

// runInSummary is the run directory that a run names in the summary that it printed; "" where it names none.
func runInSummary(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) { // the verdict comes after it
		key, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if dir = strings.TrimSpace(dir); key == "run" && resources.HasLog(dir) {
			return dir
		}
	}
	return ""
}

// resultOf reads the result of the only prompt of a file.
func resultOf(path string) (json.RawMessage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("it left no result")
	}
	var result struct{ Error string }
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	if result.Error != "" {
		return nil, errors.New(result.Error)
	}
	return json.RawMessage(text), nil
}
