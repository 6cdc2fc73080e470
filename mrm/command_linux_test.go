package mrm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/store/rundir"
)

// pages compiles a program that touches known pages, and returns a configuration of it and the folder of its results.
func pagesExperiment(t *testing.T, status int) (e *Experiment, out string) {
	t.Helper()
	testenv.NeedRoot(t)
	folder := t.TempDir()
	program := filepath.Join(folder, "pages")
	if text, err := exec.Command(testenv.NeedCC(t), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program,
		filepath.Join("testdata", "pages.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out = filepath.Join(folder, "results")
	c, err := Parse(filepath.Join(folder, "e.yaml"), fmt.Appendf(nil, `
experiment: {name: quick, repetitions: 2}
engine: {type: command, command: [./pages, "{n_ctx}", "{prompt}", "%d"], n_ctx: [700, 1500]}
workload: {prompts: ["a prompt"]}
collector: {primary: fault}
telemetry: {baseline_s: 0.1}
output: {dir: %s}
`, status, out))
	if err != nil {
		t.Fatal(err)
	}
	return &Experiment{Config: c, Program: testenv.NeedBinary(t), Version: "test"}, out
}

// TestRunCommand runs a program as an experiment: every cell is sealed with its samples, its output and what
// observing it cost, and is not run again. What it leaves running does not outlive its pass.
func TestRunCommand(t *testing.T) {
	testenv.Once(t, "TestCommandMarkers")
	e, out := pagesExperiment(t, 0)
	outcome, err := e.Run(context.Background(), []int{0, 1, 2})
	if err != nil || len(outcome.Sealed) != 3 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	for name, dir := range sealed(t, out) {
		m, err := memory.ReadMetadata(dir)
		if err != nil {
			t.Fatal(err)
		}
		o := &m.Observer
		if m.Engine.Type != commandEngine || len(m.Engine.Command) != 4 || m.Model.ID != "pages" ||
			!strings.HasPrefix(name, fmt.Sprintf("pages/p0/c%d/r", m.Cell.NCtx)) {
			t.Errorf("%s: %+v %+v", name, m.Engine, m.Cell)
		}
		if o.SameOutput == nil || !*o.SameOutput || o.WallRatio == nil || o.SameTokens != nil ||
			o.DecodeRatio != nil || o.CPUPct == nil || o.CPUNS.MRM <= 0 || o.CPUNS.Tap != 0 || o.MemoryBytes <= 0 {
			t.Errorf("%s: %+v", name, o)
		}
		if !slices.Equal(m.Collector.Used, []string{"fault"}) || m.Collector.GraphTrace != "off" ||
			len(m.Validity.Criteria) != 4 {
			t.Errorf("%s: %+v", name, m.Collector)
		}
		if n := samplesIn(t, dir); n < m.Cell.NCtx || n > m.Cell.NCtx+1000 {
			t.Errorf("%s: %d samples", name, n)
		}
		if text, err := os.ReadFile(filepath.Join(dir, rawFolder, ownOutput)); err != nil ||
			string(text) != "a prompt\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		manifest, err := rundir.ReadManifest(dir)
		for _, want := range []string{"trace.parquet", "region_map.parquet", "process.jsonl", "metrics.csv",
			"raw/prompt.txt", "raw/baseline.out"} {
			if err != nil || !slices.ContainsFunc(manifest.Files, func(f rundir.File) bool { return f.Name == want }) {
				t.Errorf("%s has no %s (%v)", name, want, err)
			}
		}
	}
	gone(t, filepath.Join(filepath.Dir(out), "pages"))
	outcome, err = e.Run(context.Background(), nil)
	if err != nil || outcome.Done != 3 || len(outcome.Sealed) != 1 {
		t.Errorf("%+v, %v", outcome, err)
	}
	p, err := NewPlan(e.Config, Machine{})
	if err != nil || p.Done != 4 || p.Needs[0].Time.Tag != Measured || p.Needs[0].Disk.Tag != Measured ||
		p.Needs[0].Memory.Tag == Estimated {
		t.Errorf("plan of what was run: %+v, %v", p.Needs, err)
	}
}

// TestCommandMarkers: a program that sets markers has its phases in the sealed run; in the pass without a recorder
// its markers are ignored.
func TestCommandMarkers(t *testing.T) {
	testenv.NeedRoot(t)
	out := filepath.Join(t.TempDir(), "results")
	e := &Experiment{Program: testenv.NeedBinary(t), Version: "test"}
	script := fmt.Sprintf("set -e; %q memory mark prefill; %q memory mark 'own name'", e.Program, e.Program)
	e.Config = parse(t, fmt.Sprintf("experiment: {name: quick}\nengine: {type: command, command: [sh, -c, "+
		"%q]}\nworkload: {prompts: a}\n"+
		"collector: {primary: fault}\ntelemetry: {baseline_s: 0.1}\noutput: {dir: %q}\n", script, out))
	if outcome, err := e.Run(context.Background(), []int{0}); err != nil || len(outcome.Sealed) != 1 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	for name, dir := range sealed(t, out) {
		report, err := ComputeAll(context.Background(), dir, Analysis{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range report.Phases {
			if names = append(names, p.Name); len(p.Samples) == 0 || p.Inferred {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if want := []string{"", "prefill", "own name"}; !slices.Equal(names, want) {
			t.Errorf("%s: phases %q, want %q", name, names, want)
		}
	}
}

// gone waits until no process names a folder any more: one that was killed may need its time to end.
func gone(t *testing.T, folder string) {
	t.Helper()
	until(t, nil, new(strings.Builder), func() bool { return len(running(folder)) == 0 })
}

// samplesIn counts the samples that a run has in perf's form.
func samplesIn(t *testing.T, dir string) int {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, rawFolder, perfScriptName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := perf.NewText(file, perf.TextOptions{Fields: "comm,tid,cpu,time,period,event,addr,sym,dso"})
	if err != nil {
		t.Fatal(err)
	}
	var a memtrace.Access
	for err == nil {
		err = in.Next(&a)
	}
	return int(in.Stats().Samples)
}

// TestCommandFails: a program that ends with a status fails its cell, with its own words, and leaves no run.
func TestCommandFails(t *testing.T) {
	e, out := pagesExperiment(t, 3)
	var why []string
	e.Report = func(event Event) {
		if event.Kind == CellFailed {
			why = append(why, event.Err.Error())
		}
	}
	if outcome, err := e.Run(context.Background(), []int{0}); !errors.Is(err, ErrFailed) || outcome.Failed != 1 ||
		len(why) != 1 || !strings.Contains(why[0], "exit status 3: it said nothing") {
		t.Errorf("%+v, %v, %q", outcome, err, why)
	}
	if cells := sealed(t, out); len(cells) > 0 {
		t.Errorf("%v", cells)
	}
	gone(t, filepath.Join(filepath.Dir(out), "pages"))
}

// TestCommandInterrupted: a context that ends, ends the program and what it has started, in either pass, and
// nothing is kept.
func TestCommandInterrupted(t *testing.T) {
	testenv.NeedRoot(t)
	for _, seed := range coins(t) {
		out := t.TempDir()
		e := &Experiment{Program: testenv.NeedBinary(t)}
		e.Config = parse(t, fmt.Sprintf("experiment: {name: quick, seed: %d}\nengine: {type: command, command: [sh, "+
			"-c, 'sleep 600; :', %q]}\nworkload: {prompts: a}\n"+
			"collector: {primary: fault}\ntelemetry: {baseline_s: 0.1}\noutput: {dir: %q}\n", seed, out, out))
		ctx, cancel := context.WithCancelCause(context.Background())
		cause := errors.New("that is all")
		e.Report = func(event Event) {
			if event.Kind == CellStep && event.Text != "looking at the machine" {
				go func() {
					for len(running(out)) == 0 && ctx.Err() == nil {
						time.Sleep(5 * time.Millisecond)
					}
					cancel(cause)
				}()
			}
		}
		if _, err := e.Run(ctx, []int{0}); !errors.Is(err, cause) {
			t.Errorf("seed %d: %v", seed, err)
		}
		if cells := sealed(t, out); len(cells) > 0 {
			t.Errorf("seed %d: %v are sealed", seed, cells)
		}
		gone(t, out)
	}
}

// TestCommandKilled: kill -9 of the experiment ends the program too, in either pass; what was under way is removed
// by the next call.
func TestCommandKilled(t *testing.T) {
	testenv.NeedRoot(t)
	for _, seed := range coins(t) {
		out, config := t.TempDir(), filepath.Join(t.TempDir(), "e.yaml")
		text := fmt.Sprintf("experiment: {name: quick, seed: %d}\nengine: {type: command, command: [sh, -c, 'sleep "+
			"600; :', %q]}\nworkload: {prompts: a}\n"+
			"collector: {primary: fault}\ntelemetry: {baseline_s: 0.1}\noutput: {dir: %q}\n", seed, out, out)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(testenv.NeedBinary(t), "mrm", "run", "--config", config)
		var log strings.Builder
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		until(t, ended, &log, func() bool { return len(running(out)) > 0 })
		cmd.Process.Kill()
		<-ended
		gone(t, out)
		if left, _ := filepath.Glob(filepath.Join(out, workFolder, "quick", "cell-*", "*.log")); len(left) != 1 ||
			len(sealed(t, out)) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// coins are two seeds, with which the first cell is recorded first and behind the run without the tap.
func coins(t *testing.T) (seeds []int64) {
	t.Helper()
	seen := map[bool]bool{}
	for seed := int64(1); len(seeds) < 2; seed++ {
		w := &work{conductor: &conductor{Experiment: &Experiment{Config: &Config{Experiment: Settings{Seed: seed}}}},
			cell: &Cell{}}
		if first := w.tapFirst(); !seen[first] {
			seen[first], seeds = true, append(seeds, seed)
		}
	}
	return seeds
}
