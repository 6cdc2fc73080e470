//go:build linux

package collect

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hangTime is how long a program may stay in its handler of SIGINT after it was interrupted twice.
const hangTime = 2 * time.Second

// listen sends the signals of a job to a channel. One that the shell has this job ignore stays ignored, here and
// in the model.
func (p *Process) listen() chan os.Signal {
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTERM, unix.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// handleSignals handles signals until the model's process has ended. TERM and HUP are passed on. The terminal sends
// INT, QUIT and TSTP to the model too: INT and QUIT are only kept from killing us, with TSTP we stop when the model
// does. A model that hangs in its handler of INT after the second one is killed: llama.cpp's handlers log, and wait for
// ever for a lock that the interrupted code holds.
func (p *Process) handleSignals(signals chan os.Signal) {
	interrupts := 0
	var late <-chan time.Time
	for {
		select {
		case s := <-signals:
			switch s {
			case unix.SIGTERM, unix.SIGHUP:
				p.cmd.Process.Signal(s)
			case unix.SIGTSTP:
				p.stopToo()
			case unix.SIGINT:
				if interrupts++; interrupts > 1 && late == nil {
					late = time.After(hangTime)
				}
			}
		case <-late:
			late = nil
			if inHandler(p.PID(), unix.SIGINT) {
				p.hung.Store(true)
				p.cmd.Process.Kill()
			}
		case <-p.done:
			return
		}
	}
}

// stopToo stops this process once the model's has stopped, so that the shell sees the job stop, and returns when it
// continues. A model that does not stop within a second does not want to.
func (p *Process) stopToo() {
	p.cmd.Process.Signal(unix.SIGTSTP) // nothing new where the terminal sent it
	for range 100 {
		if state(p.PID()) == "T" {
			stopSelf()
			p.cmd.Process.Signal(unix.SIGCONT)
			return
		}
		select {
		case <-p.done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stopSelf stops this process as SIGTSTP does by itself, which Go's runtime would swallow. It returns when the
// process continues.
func stopSelf() {
	runtime.LockOSThread() // the signal is for this thread, so that it is taken before the next line
	defer runtime.UnlockOSThread()
	var standard, ours [8]uint64 // the kernel's struct sigaction: SIG_DFL, no flags, no mask
	setAction(unix.SIGTSTP, &standard, &ours)
	unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTSTP)
	setAction(unix.SIGTSTP, &ours, nil)
}

// setAction is rt_sigaction(2) past Go's runtime.
func setAction(s unix.Signal, action, before *[8]uint64) {
	const maskBytes = 8
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(action)),
		uintptr(unsafe.Pointer(before)), maskBytes, 0, 0)
}

// state is the state of a process's first thread, as in proc(5): R runs, S sleeps, T is stopped; "" when it is gone.
func state(pid int) string {
	state, _, _ := strings.Cut(statusField(pid, "State"), " ")
	return state
}

// inHandler reports whether the first thread of a process, to which the kernel gives signals where it can, sleeps in
// its handler of s: a handler runs with its own signal blocked, and a thread that takes no signals at all blocks
// TERM too.
func inHandler(pid int, s unix.Signal) bool {
	bit := func(name string, s unix.Signal) bool {
		mask, err := strconv.ParseUint(statusField(pid, name), 16, 64)
		return err == nil && mask>>(s-1)&1 == 1
	}
	return bit("SigCgt", s) && bit("SigBlk", s) && !bit("SigBlk", unix.SIGTERM) && state(pid) == "S"
}

// statusField reads a line of /proc/PID/status; "" where it is not there.
func statusField(pid int, name string) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
