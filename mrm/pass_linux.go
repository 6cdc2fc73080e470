package mrm

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/store/rundir"
)

// The names of what a pass leaves.
const (
	promptsName  = "prompts.jsonl"
	baselineName = "baseline.jsonl"
	tappedName   = "tapped.jsonl"
)

// run runs the cell: it looks at the machine, runs the model without the tap and with it, in an order that chance
// decides, and seals what came of it.
func (w *work) run(ctx context.Context, event Event) (dir string, v *memory.Validity, err error) {
	var o observation
	w.step(event, "looking at the machine")
	if o.busy, err = w.otherLoad(ctx); err != nil {
		return "", nil, err
	}
	o.busyFor = w.Config.Telemetry.BaselineS
	e := w.engine()
	passes := []func() error{
		func() error {
			w.step(event, "running it without the tap")
			return e.baseline(ctx, &o)
		},
		func() error {
			w.step(event, "recording it")
			return e.tapped(ctx, &o)
		},
	}
	if tapFirst := w.tapFirst(); tapFirst {
		slices.Reverse(passes)
		o.tapped.First = true
	} else {
		o.baseline.First = true
	}
	for _, pass := range passes {
		if err := pass(); err != nil {
			return "", nil, err
		}
	}
	w.step(event, "sealing")
	r, err := e.recorded(&o)
	if err != nil {
		return "", nil, err
	}
	return w.seal(ctx, &o, r)
}

// An engine runs what a cell computes.
type engine interface {
	// baseline runs it without the tap.
	baseline(context.Context, *observation) error
	// tapped records it, and looks at the machine meanwhile.
	tapped(context.Context, *observation) error
	// recorded is what the recorder has sealed, of which nothing may be missing, behind both passes.
	recorded(*observation) (recording, error)
}

// A recording is what the recorder left of a cell, and what goes into raw/ beside it.
type recording struct {
	dir      string
	metadata rundir.Metadata
	raw      []string // names of files in the cell's folder
}

// engine is that of the configuration.
func (w *work) engine() engine {
	if w.Config.Engine.isCommand() {
		return &commandPasses{work: w}
	}
	return &modelPasses{work: w}
}

// tapFirst tosses a coin, the same for the same cell and seed.
func (w *work) tapFirst() bool {
	return rand.New(rand.NewPCG(uint64(w.Config.Experiment.Seed), uint64(w.cell.Index))).IntN(2) == 1
}

func (w *work) path(name string) string { return filepath.Join(w.dir, name) }

// cellSteps is how many steps run reports of a cell.
const cellSteps = 4

func (w *work) step(event Event, text string) {
	w.steps++
	event.Kind, event.Text, event.Step = CellStep, text, w.steps
	w.report(event)
}

// otherLoad returns how busy the machine is without us, as a share of all processors.
func (w *work) otherLoad(ctx context.Context) (*float64, error) {
	root := os.DirFS("/")
	before, _, err := machine.ReadTicks(root)
	if err != nil {
		return nil, nil // it is not known then, and the verdict says so
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Duration(w.Config.Telemetry.BaselineS * float64(time.Second))):
	}
	after, _, err := machine.ReadTicks(root)
	if share, ok := after.Since(before); err == nil && ok {
		return &share, nil
	}
	return nil, nil
}

// modelPasses runs llama.cpp, as llamatap run does.
type modelPasses struct {
	*work
	plain, again []answer // without the tap and with it
}

func (w *modelPasses) baseline(ctx context.Context, o *observation) error {
	if err := os.WriteFile(w.path(promptsName), w.cell.requests(), 0o600); err != nil {
		return err
	}
	first := o.baseline.First
	args := modelArgs(w.Config, w.cell, w.path(promptsName), w.path(baselineName))
	child, err := w.child(ctx, "baseline", append([]string{w.Program}, args...), nil)
	if err != nil {
		return err
	}
	w.plain, err = w.answers(baselineName)
	o.baseline = account(w.plain)
	o.baseline.First, o.baseline.WallNS, o.baseline.PeakRSSBytes = first, int64(child.wall), child.peak
	return err
}

func (w *modelPasses) tapped(ctx context.Context, o *observation) error {
	if err := os.WriteFile(w.path(promptsName), w.cell.requests(), 0o600); err != nil {
		return err
	}
	first := o.tapped.First
	debug.FreeOSMemory() // what was needed before is none of the observer's
	own := ownCPU()
	watch := newWatch(os.DirFS("/"))
	args := append(modelArgs(w.Config, w.cell, w.path(promptsName), w.path(tappedName)),
		tapArgs(w.Config, w.path("out"))...)
	child, err := w.child(ctx, "tapped", append([]string{w.Program}, args...), watch)
	if err != nil {
		return err
	}
	o.cpu.MRM = ownCPU() - own
	o.throttle = watch.throttle()
	o.memory, o.busiest = child.own, child.busy
	o.others = watch.otherProcessesPercent(int64(child.cpu)+o.cpu.MRM, clockTicks)
	w.again, err = w.answers(tappedName)
	o.tapped = account(w.again)
	o.tapped.First, o.tapped.WallNS = first, int64(child.wall)
	return err
}

func (w *modelPasses) recorded(o *observation) (r recording, err error) {
	o.same = same(w.plain, w.again)
	r.raw = []string{promptsName, baselineName, tappedName}
	if r.dir, r.metadata, err = w.sealed(); err != nil {
		return r, err
	}
	var use struct {
		CPU  int64 `json:"collector_cpu_ns"`
		Peak int64 `json:"collector_peak_rss_kib"`
	}
	m := &r.metadata
	if err := json.Unmarshal(m.Extra["processes"], &use); err != nil || m.Tap == nil || m.Tap.OwnNS == nil {
		return r, fmt.Errorf("%w: it does not contain what the collector used", errLossy)
	}
	o.cpu.Collector, o.cpu.Tap, o.peak = use.CPU, *m.Tap.OwnNS, use.Peak<<10
	if o.memory == 0 { // it ended before anybody looked
		o.memory = o.peak + ownMemory()
	}
	return r, nil
}

// sealed finds the run that the recorder has sealed, and makes sure that nothing is missing of it.
func (w *modelPasses) sealed() (dir string, m rundir.Metadata, err error) {
	dirs, _ := filepath.Glob(filepath.Join(w.path("out"), "*", "run_*"))
	if len(dirs) != 1 {
		return "", m, fmt.Errorf("%w: it left %d run directories: %s", errLossy, len(dirs),
			lastLine(w.path("tapped.log")))
	}
	m, err = rundir.ReadMetadata(dirs[0])
	switch {
	case err != nil:
		return "", m, fmt.Errorf("%w: %w", errLossy, err)
	case m.Lossy || m.Stopped != nil:
		return "", m, fmt.Errorf("%w: %s", errLossy, lastLine(w.path("tapped.log")))
	}
	return dirs[0], m, nil
}

// clockTicks is how many of the units of /proc/stat a second has: USER_HZ, which is 100 on every architecture that
// Go runs on.
const clockTicks = 100

func (w *work) answers(name string) ([]answer, error) {
	file, err := os.Open(w.path(name))
	if err != nil {
		return nil, fmt.Errorf("results of the model: %w", err)
	}
	defer file.Close()
	return answers(file, w.cell.Concurrency)
}

// clear removes what is there of the cell.
func (w *work) clear() error {
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("remove what is left of the cell: %w", err)
	}
	return nil
}

// release gives the cell back.
func (w *work) release() {
	os.RemoveAll(w.dir)
	w.lock.Close()
}
