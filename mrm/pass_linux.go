package mrm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/mrm/verdict"
	"golang.org/x/sys/unix"
)

// The names of what a pass leaves.
const (
	promptsName  = "prompts.jsonl"
	baselineName = "baseline.jsonl"
	tappedName   = "tapped.jsonl"
)

// run runs the cell: it looks at the machine, runs the model without the tap and with it, in an order that chance decides, and seals what
// came of it.
func (w *work) run(ctx context.Context, event Event) (dir string, v *verdict.Validity, err error) {
	if err := os.WriteFile(w.path(promptsName), w.cell.requests(), 0o600); err != nil {
		return "", nil, err
	}
	var o observation
	w.step(event, "looking at the machine")
	if o.busy, err = w.look(ctx); err != nil {
		return "", nil, err
	}
	o.busyFor = w.Config.Telemetry.BaselineS
	var plain, tapped []answer
	passes := []func() error{
		func() error {
			w.step(event, "running it without the tap")
			plain, err = w.baseline(ctx, &o)
			return err
		},
		func() error {
			w.step(event, "recording it")
			tapped, err = w.tapped(ctx, &o)
			return err
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
	o.same = same(plain, tapped)
	w.step(event, "sealing")
	return w.seal(ctx, &o)
}

// tapFirst tosses a coin, the same for the same cell and seed.
func (w *work) tapFirst() bool {
	return rand.New(rand.NewPCG(uint64(w.Config.Experiment.Seed), uint64(w.cell.Index))).IntN(2) == 1
}

func (w *work) path(name string) string { return filepath.Join(w.dir, name) }

func (w *work) step(event Event, text string) {
	event.Kind, event.Text = CellStep, text
	w.report(event)
}

// look is how busy the machine is without us, as a share of all processors.
func (w *work) look(ctx context.Context) (*float64, error) {
	root := os.DirFS("/")
	before, _, err := processors(root)
	if err != nil {
		return nil, nil // it is not known then, and the verdict says so
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Duration(w.Config.Telemetry.BaselineS * float64(time.Second))):
	}
	after, _, err := processors(root)
	if share, ok := after.since(before); err == nil && ok {
		return &share, nil
	}
	return nil, nil
}

// baseline runs the model without the tap.
func (w *work) baseline(ctx context.Context, o *observation) ([]answer, error) {
	first := o.baseline.First
	child, err := w.child(ctx, "baseline", w.Config.modelArgs(w.cell, w.path(promptsName), w.path(baselineName)), nil)
	if err != nil {
		return nil, err
	}
	all, err := w.answers(baselineName)
	o.baseline = account(all)
	o.baseline.First, o.baseline.WallNS, o.baseline.PeakRSSBytes = first, int64(child.wall), child.peak
	return all, err
}

// tapped records it, and looks at the machine meanwhile.
func (w *work) tapped(ctx context.Context, o *observation) ([]answer, error) {
	first := o.tapped.First
	debug.FreeOSMemory() // what was needed before is none of the observer's
	own := ownCPU()
	watch := newWatch(os.DirFS("/"))
	args := append(w.Config.modelArgs(w.cell, w.path(promptsName), w.path(tappedName)), w.Config.tapArgs(w.path("out"))...)
	child, err := w.child(ctx, "tapped", args, watch)
	if err != nil {
		return nil, err
	}
	o.cpu.MRM = ownCPU() - own
	o.throttle = watch.throttle()
	o.memory = child.own
	o.others = watch.others(int64(child.cpu)+o.cpu.MRM, clockTicks)
	all, err := w.answers(tappedName)
	o.tapped = account(all)
	o.tapped.First, o.tapped.WallNS = first, int64(child.wall)
	return all, err
}

// clockTicks is how many of the units of /proc/stat a second has: USER_HZ, which is 100 on every architecture that Go runs on.
const clockTicks = 100

func (w *work) answers(name string) ([]answer, error) {
	file, err := os.Open(w.path(name))
	if err != nil {
		return nil, fmt.Errorf("results of the model: %w", err)
	}
	defer file.Close()
	return answers(file, w.cell.Concurrency)
}

// ownCPU is the processor time of this process so far.
func ownCPU() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// ownMemory is what this process has beside its program's code, which the collector has as well.
func ownMemory() int64 { return status("self", "RssAnon") }

// status is a number of kB of /proc/PID/status, as bytes; 0 where it cannot be read.
func status(pid, key string) int64 {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == key {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// A child is how a llamatap that was run ended.
type child struct {
	wall time.Duration
	cpu  time.Duration // of it and of what it started
	peak int64         // most memory that it had itself, bytes; of one that is not watched. 0: not known
	own  int64         // most that it had beside files, which it maps as others do; of one that is watched
}

// How often a child is looked at: the one without the tap, whose peak of memory is wanted, and the recorded one, which that would disturb.
const (
	peakSampling = 20 * time.Millisecond
	sampling     = 250 * time.Millisecond
)

// child runs llamatap to its end. It has a process group of its own, so that Ctrl-C reaches us alone, and dies with this process.
func (w *work) child(ctx context.Context, name string, args []string, watch *watch) (child, error) {
	log, err := os.Create(w.path(name + ".log"))
	if err != nil {
		return child{}, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, w.Program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, clean(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	ended := make(chan error, 1)
	began := make(chan error)
	at := time.Now()
	go func() {
		runtime.LockOSThread() // the kernel takes the end of the thread that started a child for that of its parent
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		began <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-began; err != nil {
		return child{}, fmt.Errorf("start %s: %w", w.Program, err)
	}
	result := child{}
	err = result.follow(cmd, at, ended, watch)
	if err != nil && ctx.Err() == nil {
		return result, fmt.Errorf("%s run: %w: %s", name, err, lastLine(log.Name()))
	}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	return result, nil
}

// follow looks at a child until it has ended.
func (c *child) follow(cmd *exec.Cmd, at time.Time, ended <-chan error, watch *watch) error {
	interval := peakSampling
	if watch != nil {
		interval = sampling
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if pid := strconv.Itoa(cmd.Process.Pid); watch == nil {
				c.peak = max(c.peak, status(pid, "VmHWM"))
			} else {
				watch.look(int64(time.Since(at)))
				c.own = max(c.own, status(pid, "RssAnon")+status(pid, "RssShmem"))
			}
		case err := <-ended:
			c.wall = time.Since(at)
			if watch != nil {
				watch.look(int64(c.wall))
			}
			c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			// A child's peak begins with its parent's.
			if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && usage.Maxrss<<10 > status("self", "VmHWM") {
				c.peak = max(c.peak, usage.Maxrss<<10)
			}
			return err
		}
	}
}

// lastLine is the last line of a log, which tells what went wrong.
func lastLine(path string) string {
	text, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return clip(last)
	}
	return "it said nothing"
}
