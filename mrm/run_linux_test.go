package mrm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// quick is a matrix of two cells per repetition, of a second or so each.
const quick = "experiment: {name: quick, repetitions: %d}\nengine: {n_ctx: 256, kv_type: [f16, q8_0], threads: " +
	"1}\nworkload: {prompts: \"func main() {\", max_tokens: 16}\ntelemetry: {baseline_s: 0.1}\noutput: {dir: %s}\n"

func experiment(t *testing.T, repetitions int, out string) *Experiment {
	t.Helper()
	if others := []string{"TestInterrupted", "TestTogether"}; !slices.Contains(others, t.Name()) {
		testenv.Once(t, others...)
	}
	return &Experiment{Config: parse(t, fmt.Sprintf(quick, repetitions, out)), Program: testenv.NeedBinary(t),
		Version: "test"}
}

// sealed are the runs below out by cell, each of which must be whole.
func sealed(t *testing.T, out string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, run := range runs(out) {
		if run.err != nil {
			t.Errorf("%s: %v", run.dir, run.err)
			continue
		}
		report, err := rundir.Verify(run.dir)
		if err != nil || len(report.Missing)+len(report.Changed)+len(report.Extra) > 0 {
			t.Errorf("%s: %+v, %v", run.dir, report, err)
		}
		name := run.meta.Cell.Name()
		if all[name] != "" {
			t.Errorf("%s was sealed twice: %s and %s", name, all[name], run.dir)
		}
		all[name] = run.dir
		if archived := strings.Contains(run.dir,
			archiveFolder); archived != (run.meta.Validity.Class == memory.Contaminated) {
			t.Errorf("%s is %s", run.dir, run.meta.Validity.Class)
		}
	}
	return all
}

// TestRun runs a matrix, and again when there is nothing left to do.
func TestRun(t *testing.T) {
	out := t.TempDir()
	e := experiment(t, 1, out)
	var kinds []EventKind
	e.Report = func(event Event) { kinds = append(kinds, event.Kind) }
	outcome, err := e.Run(context.Background(), nil)
	if err != nil || len(outcome.Sealed) != 2 || outcome.Done+outcome.Failed+outcome.Left != 0 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	if kinds[0] != CellBegun || kinds[len(kinds)-1] != CellSealed {
		t.Errorf("events %v", kinds)
	}
	cells := sealed(t, out)
	if len(cells) != 2 {
		t.Fatalf("%v", cells)
	}
	for name, dir := range cells {
		checkRun(t, name, dir)
	}
	if left, _ := filepath.Glob(filepath.Join(out, workFolder, "quick", "cell-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	outcome, err = e.Run(context.Background(), nil)
	if err != nil || outcome.Done != 2 || len(outcome.Sealed) != 0 {
		t.Errorf("%+v, %v", outcome, err)
	}
	p, err := NewPlan(e.Config, Machine{})
	if err != nil || p.Done != 2 || p.Needs[0].Time.Tag != Measured || p.Needs[0].Disk.Tag != Measured {
		t.Errorf("plan of what was run: %+v, %v", p.Needs, err)
	}
	if _, err := e.Run(context.Background(), []int{2}); !errors.Is(err, ErrCell) {
		t.Errorf("a cell too many: %v", err)
	}
}

// checkRun looks at what a sealed run says.
func checkRun(t *testing.T, name, dir string) {
	t.Helper()
	m, err := memory.ReadMetadata(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := rundir.ReadManifest(dir)
	if err != nil || manifest.RunID != filepath.Base(dir) || m.RunID != filepath.Base(dir) ||
		m.Cell.ModelID != filepath.Base(filepath.Dir(dir)) {
		t.Errorf("%s: %+v, %v", name, manifest, err)
	}
	for _, want := range []string{"trace.parquet", "region_map.parquet", "kv_block_lifecycle.parquet", "metrics.csv",
		"metadata.json", "raw/allocations.jsonl", "raw/baseline.jsonl", "raw/tapped.jsonl", "raw/prompts.jsonl"} {
		if !slices.ContainsFunc(manifest.Files, func(f rundir.File) bool { return f.Name == want && f.Size > 0 }) {
			t.Errorf("%s has no %s", name, want)
		}
	}
	o := &m.Observer
	if o.Baseline.GeneratedTokens != 16 || o.Tapped.GeneratedTokens != 16 || o.Baseline.PromptTokens == 0 ||
		o.SameTokens == nil || !*o.SameTokens {
		t.Errorf("%s: passes %+v %+v, same %v", name, o.Baseline, o.Tapped, o.SameTokens)
	}
	if o.CPUPct == nil || *o.CPUPct <= 0 || o.CPUPeakPct == nil || *o.CPUPeakPct < *o.CPUPct || o.MemoryPct == nil ||
		*o.MemoryPct <= 0 || o.DecodeRatio == nil || o.BaselineCPUPct == nil || o.Baseline.First == o.Tapped.First {
		t.Errorf("%s: %+v", name, o)
	}
	if o.CPUNS.Collector <= 0 || o.CPUNS.Tap <= 0 || len(m.Validity.Criteria) != 4 || m.Experiment.Name != "quick" ||
		m.SchemaVersion == "" {
		t.Errorf("%s: %+v %+v", name, o.CPUNS, m.Validity)
	}
	// of a model of 6 MB, which the observer alone is larger than a twentieth of
	for _, c := range m.Validity.Criteria {
		// Under the race detector the observer takes several times as much memory as the allowance has.
		if c.Name == "memory_pct" && (c.Class != memory.Clean && !testenv.Race || *c.Value < 5) {
			t.Errorf("%s: %.3g %s, %.0f bytes: %s", name, *c.Value, c.Unit, *c.Amount, c.Class)
		}
	}
	lines, err := allocations(dir)
	if err != nil || len(lines) < 3 {
		t.Fatalf("%s: %d buffers, %v", name, len(lines), err)
	}
	holds := map[string]int64{}
	for _, a := range lines {
		for kind, bytes := range a.Holds {
			holds[kind] += bytes
		}
	}
	if p := planned(t, fmt.Sprintf(quick, 1, "x")); name == p.Cells[0].Name() &&
		holds["kv_cache"] != int64(p.Needs[0].Cache.Value) {
		t.Errorf("%s: a cache of %d bytes, the plan said %v", name, holds["kv_cache"], p.Needs[0].Cache)
	}
}

// TestSamples: a collector that this machine lacks is replaced, which is reported, and samples are in perf's form too.
func TestSamples(t *testing.T) {
	testenv.NeedRoot(t)
	out := t.TempDir()
	e := experiment(t, 1, out)
	e.Config.Collector.Primary, e.Config.Collector.Fallback, e.Config.Collector.GraphTrace = "perf", "fault", "off"
	outcome, err := e.Run(context.Background(), []int{0})
	if err != nil || len(outcome.Sealed) != 1 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	sealed(t, out)
	m, err := memory.ReadMetadata(outcome.Sealed[0])
	if err != nil {
		t.Fatal(err)
	}
	k := m.Collector
	if len(k.Used) != 1 || k.Used[0] != "perf" && (k.Used[0] != "fault" || k.Why == "") ||
		!slices.Equal(k.Asked, []string{"perf"}) {
		t.Errorf("%+v", k)
	}
	text, err := os.Open(filepath.Join(outcome.Sealed[0], rawFolder, perfScriptName))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	in, err := perf.NewText(text, perf.TextOptions{Fields: "comm,tid,cpu,time,period,event,addr,sym,dso"})
	if err != nil {
		t.Fatal(err)
	}
	var a memtrace.Access
	for err == nil {
		err = in.Next(&a)
	}
	if s := in.Stats(); err != io.EOF || s.Samples == 0 || s.Bad > 0 {
		t.Errorf("%v, %+v", err, s)
	}
	for _, name := range []string{metricsName, "process.jsonl"} {
		if _, err := os.Stat(filepath.Join(outcome.Sealed[0], name)); err != nil {
			t.Error(err)
		}
	}
}

// TestTogether: two that run one experiment at a time seal each cell once.
func TestTogether(t *testing.T) {
	out := t.TempDir()
	var both sync.WaitGroup
	var outcomes [2]Outcome
	for i := range outcomes {
		e := experiment(t, 2, out)
		both.Go(func() {
			var err error
			if outcomes[i], err = e.Run(context.Background(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if cells := sealed(t, out); len(cells) != 4 || len(outcomes[0].Sealed)+len(outcomes[1].Sealed) != 4 {
		t.Errorf("%v: %+v", cells, outcomes)
	}
}

// TestSHA256: a file that is not the one of the configuration is refused before anything runs.
func TestSHA256(t *testing.T) {
	e := experiment(t, 1, t.TempDir())
	path := testenv.Model(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e.Config.Models[0] = Model{Path: path, SHA256: fmt.Sprintf("%x", sha256.Sum256(text))}
	if _, err := e.Run(context.Background(), []int{}); err != nil {
		t.Errorf("the right file: %v", err)
	}
	e.Config.Models[0].SHA256 = strings.Repeat("0", 64)
	if _, err := e.Run(context.Background(), []int{}); err == nil ||
		!strings.Contains(err.Error(), "model.sha256") {
		t.Errorf("another file: %v", err)
	}
}

// TestDamage: a flipped byte and a version of another major number are refused, with the name of the file.
func TestDamage(t *testing.T) {
	out := t.TempDir()
	e := experiment(t, 1, out)
	outcome, err := e.Run(context.Background(), []int{0})
	if err != nil || len(outcome.Sealed) != 1 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	dir := outcome.Sealed[0]
	change := func(name string, edit func([]byte) []byte) (undo func()) {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, edit(slices.Clone(text)), 0o600); err != nil {
			t.Fatal(err)
		}
		return func() { os.WriteFile(path, text, 0o600) }
	}
	undo := change("region_map.parquet", func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	if _, err := e.Run(context.Background(), []int{0}); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "region_map.parquet") {
		t.Errorf("a flipped byte: %v", err)
	}
	undo()
	undo = change("metadata.json", func(b []byte) []byte {
		return []byte(strings.Replace(string(b), `_schema_version": "2.`, `_schema_version": "7.`, 1))
	})
	if _, err := e.Run(context.Background(), []int{0}); !errors.Is(err, memory.ErrVersion) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("version 7: %v", err)
	}
	undo()
	if outcome, err := e.Run(context.Background(), []int{0}); err != nil || outcome.Done != 1 {
		t.Errorf("%+v, %v", outcome, err)
	}
}

// TestBusyNeighbour: with every processor taken, the look at the machine before the run makes it contaminated.
func TestBusyNeighbour(t *testing.T) {
	out := t.TempDir()
	e := experiment(t, 1, out)
	var done atomic.Bool
	var threads sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		threads.Go(func() {
			for !done.Load() {
			}
		})
	}
	e.Config.Telemetry.BaselineS = 0.5
	once := sync.OnceFunc(func() { done.Store(true); threads.Wait() })
	defer once()
	e.Report = func(event Event) { // only what was before the run is looked at
		if event.Kind == CellStep && event.Text != "looking at the machine" {
			once()
		}
	}
	outcome, err := e.Run(context.Background(), []int{1})
	if err != nil || outcome.Classes[memory.Contaminated] != 1 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	m, err := memory.ReadMetadata(outcome.Sealed[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Validity.Criteria {
		if c.Name == "baseline_cpu_pct" && (c.Class != memory.Contaminated || *c.Value < 80) {
			t.Errorf("%+v", c)
		}
	}
	if filepath.Dir(filepath.Dir(outcome.Sealed[0])) != filepath.Join(out, archiveFolder) {
		t.Errorf("it lies in %s", outcome.Sealed[0])
	}
}

// TestInterrupted: a context that ends, ends the cell, of which nothing is kept; enough ends the experiment behind it.
func TestInterrupted(t *testing.T) {
	out := t.TempDir()
	e := experiment(t, 1, out)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("that is all")
	e.Report = func(event Event) {
		if event.Kind == CellStep && strings.Contains(event.Text, "running") {
			cancel(cause)
		}
	}
	if _, err := e.Run(ctx, nil); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	if cells := sealed(t, out); len(cells) > 0 {
		t.Errorf("%v", cells)
	}
	if left, _ := filepath.Glob(filepath.Join(out, workFolder, "quick", "cell-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	enough := make(chan struct{})
	e.Enough = enough
	e.Report = func(event Event) {
		if event.Kind == CellBegun {
			close(enough)
		}
	}
	outcome, err := e.Run(context.Background(), nil)
	if err != nil || len(outcome.Sealed) != 1 || outcome.Left != 1 {
		t.Errorf("%+v, %v", outcome, err)
	}
}

// TestDiskFull: what was sealed before the disk is full stays whole, and with room the rest follows.
func TestDiskFull(t *testing.T) {
	testenv.NeedRoot(t)
	out := t.TempDir()
	if err := unix.Mount("tmpfs", out, "tmpfs", 0, "size=64m"); err != nil {
		testenv.Beyond(t, "a tmpfs of its own", err.Error())
	}
	defer unix.Unmount(out, unix.MNT_DETACH)
	e := experiment(t, 2, out)
	if outcome, err := e.Run(context.Background(), []int{0, 1}); err != nil || len(outcome.Sealed) != 2 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	filler := filepath.Join(out, "filler")
	fill := func() {
		var stat unix.Statfs_t
		if err := unix.Statfs(out, &stat); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filler, make([]byte, int64(stat.Bavail)*int64(stat.Bsize)-4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.Report = func(event Event) { // full in the middle of a cell
		if event.Kind == CellStep && event.Text == "sealing" {
			fill()
		}
	}
	if outcome, err := e.Run(context.Background(), nil); !errors.Is(err, ErrNoRoom) || outcome.Done != 2 ||
		len(outcome.Sealed) != 0 || outcome.Left != 2 {
		t.Errorf("on a disk that becomes full: %+v, %v", outcome, err)
	}
	if _, err := e.Run(context.Background(), nil); !errors.Is(err, ErrNoRoom) {
		t.Errorf("on a full disk: %v", err)
	}
	e.Report = nil
	if cells := sealed(t, out); len(cells) != 2 {
		t.Errorf("%v", cells)
	}
	os.Remove(filler)
	if outcome, err := e.Run(context.Background(), nil); err != nil || outcome.Done != 2 || len(outcome.Sealed) != 2 {
		t.Errorf("with room again: %+v, %v", outcome, err)
	}
	if cells := sealed(t, out); len(cells) != 4 {
		t.Errorf("%v", cells)
	}
}

// TestKilled: kill -9 in the middle of a matrix, then the same again: every cell is sealed once, and nothing else
// is left.
func TestKilled(t *testing.T) {
	out := t.TempDir()
	e := experiment(t, 2, out)
	config := filepath.Join(t.TempDir(), "e.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, quick, 2, out), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.NeedBinary(t), "mrm", "run", "--config", config)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// The second cell is under way: the first is sealed, and something lies in the folder of another.
	until(t, ended, &log, func() bool {
		under, _ := filepath.Glob(filepath.Join(out, workFolder, "quick", "cell-000001-*", "*.log"))
		return len(under) > 0
	})
	cmd.Process.Kill()
	<-ended
	if cells := sealed(t, out); len(cells) != 1 {
		t.Fatalf("%v\n%s", cells, log.String())
	}
	until(t, nil, &log, func() bool { return len(running(out)) == 0 })
	removed := 0
	e.Report = func(event Event) {
		if event.Kind == CellRemoved {
			removed++
		}
	}
	outcome, err := e.Run(context.Background(), nil)
	if err != nil || outcome.Done != 1 || len(outcome.Sealed) != 3 || removed != 1 {
		t.Errorf("%+v, %v, %d removed", outcome, err, removed)
	}
	if cells := sealed(t, out); len(cells) != 4 {
		t.Errorf("%v", cells)
	}
	if left, _ := filepath.Glob(filepath.Join(out, workFolder, "quick", "cell-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// until waits for something, as long as a process runs.
func until(t *testing.T, ended <-chan error, log fmt.Stringer, is func() bool) {
	t.Helper()
	limit := time.After(testenv.Patience())
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, log)
		case <-limit:
			t.Fatal("waited in vain")
		case <-tick.C:
		}
	}
}

// running are the processes that name a folder in their arguments.
func running(folder string) (pids []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(folder)) {
			pids = append(pids, path)
		}
	}
	return pids
}
