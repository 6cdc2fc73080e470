//go:build linux

package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// FDVariable names to the tap in which file descriptors the shared memory and the pipe beside it are passed on:
// MEMORY,PIPE.
const FDVariable = "LLAMATAP_TAP_FD"

// Process is a model's process under the tap.
type Process struct {
	Region   *Region
	cmd      *exec.Cmd
	terminal terminal
	done     chan struct{}
	hung     atomic.Bool // killed, because its handler of SIGINT hung
}

// Start starts cmd with the shared memory of region passed on, then gives this whole process the lowest priority:
// from here on every CPU cycle that the model wants is the model's. Signals of the terminal are left to the model,
// see [Process.Exit]; TERM and HUP are passed on. Once the model is gone this process ignores INT and HUP, so that
// it can seal what was recorded. A process is held at its execve until ready, unless that is nil, has returned for
// its id.
func Start(cmd *exec.Cmd, region *Region, ready func(pid int) error) (*Process, error) {
	shared, err := passOn(region.File(), region.Life())
	if err != nil {
		return nil, err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d,%d", FDVariable, shared[0], shared[1]))
	p := &Process{Region: region, cmd: cmd, terminal: lookAtTerminal(cmd.Stdin), done: make(chan struct{})}
	signals := p.listen()
	if ready == nil {
		if err = cmd.Start(); err != nil {
			err = fmt.Errorf("start %s: %w", cmd.Path, err)
		}
	} else {
		err = perf.StartHeld(cmd, ready)
	}
	shared.close()
	if err != nil {
		signal.Stop(signals)
		return nil, err
	}
	if err := lowerPriority("/proc/self/task"); err != nil {
		signal.Stop(signals)
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	go p.handleSignals(signals)
	go func() {
		_ = cmd.Wait() // ProcessState has how it ended
		// While the run is sealed nobody reads these. signal.Ignore is no way: between no longer wanting a signal and
		// ignoring it, Go's runtime dies of it, and a collector of low priority may stay there for long.
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGHUP)
		signal.Stop(signals)
		if p.hung.Load() || signalled(cmd.ProcessState) {
			p.terminal.restore()
		}
		close(p.done)
	}()
	return p, nil
}

// descriptors are open files that a program which is started next inherits under the same numbers.
type descriptors []int

// passOn opens files once more under numbers that are free here, so that a program keeps every descriptor that its
// user gave it, such as 3 of "3<file". (exec.Cmd.ExtraFiles would take 3 for us.)
func passOn(files ...*os.File) (passed descriptors, err error) {
	const first = 64 // behind those that shells name
	for _, file := range files {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, first)
		if err != nil {
			passed.close()
			return nil, tooFewFiles(err)
		}
		passed = append(passed, fd)
	}
	return passed, nil
}

// tooFewFiles explains why a file could not be opened once more: the limit of open files, which is below the number
// asked for.
func tooFewFiles(err error) error {
	var limit unix.Rlimit
	few := errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMFILE)
	if few && unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		return fmt.Errorf("pass the shared memory on: the limit of %d open files is too low: raise it, "+
			"as with ulimit -n 1024", limit.Cur)
	}
	return fmt.Errorf("pass the shared memory on: %w", err)
}

func (d descriptors) close() {
	for _, fd := range d {
		unix.Close(fd)
	}
}

// schedIdle is Linux's SCHED_IDLE: a thread that runs when nobody else wants to, and yields at once.
const schedIdle = 5

// lowerPriority gives every thread of this process, which the folder names, nice 19 and the idle policy; threads that
// they start inherit both. Nice 19 alone is not enough: its share of a core is 1.5 %, but taken in slices of
// milliseconds, for which llama's threads wait at a barrier. Where a sandbox forbids the policy, nice 19 must do.
func lowerPriority(folder string) error {
	tasks, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lower own priority: %w: mount /proc (mount -t proc proc /proc)", err)
	}
	if err != nil {
		return fmt.Errorf("lower own priority: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, 19); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("lower own priority to 19: %w", err)
		}
		idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedIdle, Nice: 19}
		err = unix.SchedSetAttr(tid, &idle, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("lower own priority to idle: %w", err)
		}
	}
	return nil
}

// PID is the model's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop asks the model's process to end.
func (p *Process) Stop(s syscall.Signal) { p.cmd.Process.Signal(s) }

// Exited is closed when the model's process is gone.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Usage is what the model's process used; nil until it has exited.
func (p *Process) Usage() *syscall.Rusage {
	select {
	case <-p.done:
	default:
		return nil
	}
	usage, _ := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usage
}

// Exit says how a process ended.
type Exit struct {
	Status int            // exit status, or 128 + signal
	Signal syscall.Signal // 0 = none
	// Hung: it was killed because its handler of SIGINT hung. Status is what the handler would have ended it with.
	Hung bool
}

// Exit waits for the model's process.
func (p *Process) Exit() Exit {
	<-p.done
	state := p.cmd.ProcessState
	switch {
	case signalled(state) && p.hung.Load():
		return Exit{Status: 128 + int(unix.SIGINT), Hung: true}
	case signalled(state):
		s := state.Sys().(syscall.WaitStatus).Signal()
		return Exit{Status: 128 + int(s), Signal: s}
	}
	return Exit{Status: state.ExitCode()}
}

// signalled reports whether a process was ended by a signal.
func signalled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// Polling: while a model computes, the tap makes no system call to say that there is something to read, so the
// collector looks. It looks often while tensors come, whose slots are to stay in the caches, or many records; seldom
// otherwise; and after pollDeepAfter without any it sleeps deeply, until the first record wakes it. The tap also wakes
// it when room gets short. Each look takes a core from a thread of the model for a while, and the others wait for that
// one.
const (
	pollBusy      = time.Millisecond
	pollFew       = 10 * time.Millisecond // where Idle.Often, and something is found
	pollIdle      = 40 * time.Millisecond
	pollDeep      = 250 * time.Millisecond
	pollDeepAfter = time.Second
)

// Idle is what a collector does besides reading the queue.
type Idle struct {
	// Do is called whenever the queue was found empty.
	Do func() error
	// Often: Do is wanted every 10 ms while something is found, and every 40 ms while nothing is, since it reads what
	// fills up by itself. Else it is called every 40 ms and, while nothing happens for long, every 250 ms.
	Often bool
}

// pauses is how long a collector sleeps.
type pauses struct {
	often bool
	pause time.Duration // the next one
	quiet time.Duration // how long nothing was found
	calm  time.Duration // how long not much was found, and no tensor was leased
}

// next plans the next pause: something was found, and whether it was much. It returns how to sleep.
func (p *pauses) next(found, much bool) (how uint32) {
	if p.quiet += p.pause; found {
		p.quiet = 0
	}
	if p.calm += p.pause; much {
		p.calm = 0
	}
	longest := pollIdle
	if p.often && found {
		longest = pollFew
	}
	p.pause = max(min(p.pause*2, longest), pollBusy)
	switch {
	case much:
		p.pause = pollBusy
	case !p.often && p.quiet >= pollDeepAfter:
		p.pause = pollDeep
		return sleepDeep
	}
	return sleepLight
}

// processors is how many of them Go's scheduler may use: one while not much was found for long. With more, it watches
// a thread that waits in a system call for up to 10 ms, waking every 20 µs and more, before it leaves it alone; that
// costs several times as much as reading the few records that came.
func (p *pauses) processors(all int) int {
	if p.often || p.calm < pollDeepAfter {
		return all
	}
	return 1
}

// Pump, as [Start], is for a process that does nothing but collect: while little comes it lowers GOMAXPROCS, so what
// is made meanwhile must not take its number of goroutines from that.
//
// It reads the queue until the model's process is gone and everything that it published is read. The first error of
// the sink is returned at once; the process is left running then.
func (p *Process) Pump(ctx context.Context, reader *Reader, idle Idle) error {
	pauses := pauses{often: idle.Often}
	all := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(all)
	used := all
	defer reader.wakeAt(p.done, ctx.Done())()
	for {
		exited := false
		select {
		case <-p.done:
			exited = true
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		read := reader.read()
		n, err := reader.Drain()
		if err != nil {
			return err
		}
		if idle.Do != nil {
			if err := idle.Do(); err != nil {
				return err
			}
		}
		if exited {
			return nil
		}
		how := pauses.next(n > 0, reader.exceedsBatch(read))
		if reader.leases() > 0 { // others pack tensors
			pauses.calm = 0
		}
		if n := pauses.processors(all); n != used { // a change stops the world
			used = n
			runtime.GOMAXPROCS(n)
		}
		reader.sleep(pauses.pause, how)
	}
}
