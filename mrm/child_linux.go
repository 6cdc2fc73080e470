package mrm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/runner/memory"
)

// ownCPU is the processor time of this process so far.
func ownCPU() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// cpuOf is the processor time of another process so far, by its clock; false where it has ended.
func cpuOf(pid int) (ns int64, ok bool) {
	var t unix.Timespec
	const schedule = 2 // CPUCLOCK_SCHED: of all its threads, in nanoseconds
	if unix.ClockGettime(int32(^pid<<3|schedule), &t) != nil {
		return 0, false
	}
	return t.Nano(), true
}

// ownMemory is what this process has beside its program's code, which the collector has as well.
func ownMemory() int64 { return process.StatusBytes(os.Getpid(), "RssAnon") }

// A child is how a llamatap that was run ended.
type child struct {
	pid  int
	wall time.Duration
	cpu  time.Duration // of it and of what it started
	peak int64         // most memory that it had itself, bytes; of one that is not watched. 0: not known
	// most that it and this process had beside files, which it maps as others do; of one that is watched
	own int64
	// largest share of a processor that both used in a second; of one that is watched. 0: it was shorter
	busy float64
}

// How often a child is looked at: the one without the tap, whose peak of memory is wanted, at first, when it may end
// soon, and later; and the recorded one, which that would disturb but for its first second, which may be all of it.
const (
	firstSampling = 5 * time.Millisecond
	peakSampling  = 20 * time.Millisecond
	sampling      = 250 * time.Millisecond
)

// command prepares a program whose words go to files of the cell: name.log, or name.out and name.log, where apart
// says so. It has a process group of its own, so that Ctrl-C reaches us alone, and dies with the thread that starts
// it. release closes the files after it.
func (w *work) command(ctx context.Context, name string, argv []string, apart bool) (
	cmd *exec.Cmd, release func(), err error,
) {
	log, err := os.Create(w.path(name + ".log"))
	if err != nil {
		return nil, nil, err
	}
	out := log
	if apart {
		if out, err = os.Create(w.path(name + ".out")); err != nil {
			return nil, nil, errors.Join(err, log.Close())
		}
	}
	cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, log,
		append(clean(os.Environ()), memory.FolderEnv+"="+memory.Unrecorded) // until it is recorded
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd, func() {
		log.Close()
		out.Close()
	}, nil
}

// child runs a program to its end. It is watched, where there is a watch, with what it has itself, or else only its
// peak of memory is.
func (w *work) child(ctx context.Context, name string, argv []string, watch *watch) (child, error) {
	cmd, release, err := w.command(ctx, name, argv, w.Config.Engine.isCommand())
	if err != nil {
		return child{}, err
	}
	defer release()
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
		return child{}, fmt.Errorf("start %s: %w", argv[0], err)
	}
	result := child{pid: cmd.Process.Pid}
	err = result.follow(cmd, at, ended, watch)
	if err != nil && ctx.Err() == nil {
		return result, fmt.Errorf("%s run: %w: %s", name, err, lastLine(w.path(name+".log")))
	}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	return result, nil
}

// follow looks at a child until it has ended.
func (c *child) follow(cmd *exec.Cmd, at time.Time, ended <-chan error, watch *watch) error {
	every := peakSampling
	if watch == nil {
		every = firstSampling
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	isSlow, looked := false, at
	var used peakCPU
	used.add(0, ownCPU())
	for {
		select {
		case <-tick.C:
			since := time.Since(at)
			if pid := cmd.Process.Pid; watch == nil {
				if !isSlow && since >= sampling {
					tick.Reset(peakSampling)
					isSlow = true
				}
				c.peak = max(c.peak, process.StatusBytes(pid, "VmHWM"))
			} else {
				if !isSlow && since >= time.Second {
					tick.Reset(sampling)
					isSlow = true
				}
				if time.Since(looked) >= sampling {
					watch.sample(int64(time.Since(at)))
					looked = time.Now()
				}
				if own := process.StatusBytes(pid, "RssAnon") + process.StatusBytes(pid, "RssShmem"); own > 0 {
					c.own = max(c.own, own+ownMemory())
				}
				if cpu, ok := cpuOf(cmd.Process.Pid); ok {
					used.add(int64(time.Since(at)), cpu+ownCPU())
					c.busy = used.most
				}
			}
		case err := <-ended:
			c.wall = time.Since(at)
			if watch != nil {
				watch.sample(int64(c.wall))
			}
			c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			// A child's peak begins with its parent's.
			if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok &&
				usage.Maxrss<<10 > process.StatusBytes(os.Getpid(), "VmHWM") {
				c.peak = max(c.peak, usage.Maxrss<<10)
			}
			return err
		}
	}
}

// lastLine is the last line of a log, which says what went wrong.
func lastLine(path string) string {
	text, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return clip(last)
	}
	return "it said nothing"
}
