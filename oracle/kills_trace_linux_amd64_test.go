package oracle

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// killCalls are the system calls by which files get and lose names, sizes, and their place on the disk, with the
// number of the argument that names the file: a path, or of those in descriptors a descriptor.
var killCalls = map[uint64]struct {
	name       string
	argument   int
	descriptor bool
}{
	unix.SYS_RENAMEAT: {"rename", 3, false}, unix.SYS_RENAMEAT2: {"rename", 3, false},
	unix.SYS_RENAME: {"rename", 1, false},
	unix.SYS_FSYNC:  {"fsync", 0, true}, unix.SYS_FDATASYNC: {"fdatasync", 0, true},
	unix.SYS_FTRUNCATE: {"ftruncate", 0, true},
	unix.SYS_UNLINKAT:  {"unlink", 1, false}, unix.SYS_LINKAT: {"link", 3, false},
	unix.SYS_TRUNCATE: {"truncate", 0, false},
	unix.SYS_MKDIRAT:  {"mkdir", 1, false},
}

// A tracedCall is one of killCalls that a stopped thread makes.
type tracedCall struct {
	tid, number int // number: of this call, counted from 1 over all threads
	name, path  string
	returned    bool
}

// killAtCall runs a command to its call number n of killCalls, counted over all of its threads, and kills it there
// before the call is made. It returns which call that was and its file, "" if the command ends before, and how many
// there were. What the command starts is not counted.
func killAtCall(t *testing.T, cmd *exec.Cmd, n int) (at string, calls int) {
	t.Helper()
	traceCalls(t, cmd, func(c tracedCall) {
		if calls = max(calls, c.number); c.number == n && !c.returned {
			at = c.name + " " + fileOf(c.path)
			unix.Kill(cmd.Process.Pid, unix.SIGKILL)
		}
	})
	return at, calls
}

// traceCalls runs a command to its end and stops each of its threads before one of killCalls and after it, for seen.
// It returns how the command ended.
func traceCalls(t *testing.T, cmd *exec.Cmd, seen func(tracedCall)) (status unix.WaitStatus) {
	t.Helper()
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		t.Fatal(err)
	}
	inside := map[int]tracedCall{} // threads in a call
	calls, tid, signal := 0, pid, 0
	for {
		_ = unix.PtraceSyscall(tid, signal) // one that has ended meanwhile is seen below
		var err error
		for {
			if tid, err = unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil); err != unix.EINTR {
				break
			}
		}
		if err != nil || tid == pid && (status.Exited() || status.Signaled()) {
			break
		}
		signal = 0
		switch {
		case !status.Stopped():
		case status.StopSignal() == unix.SIGTRAP|0x80:
			if c, returned := inside[tid]; returned {
				if delete(inside, tid); c.number > 0 {
					c.returned = true
					seen(c)
				}
				continue
			}
			c := tracedCall{tid: tid}
			var regs unix.PtraceRegs
			if unix.PtraceGetRegs(tid, &regs) == nil {
				if call, counts := killCalls[regs.Orig_rax]; counts {
					calls++
					c.number, c.name = calls, call.name
					c.path = pathOf(tid, []uint64{regs.Rdi, regs.Rsi, regs.Rdx, regs.R10}[call.argument],
						call.descriptor)
					seen(c)
				}
			}
			inside[tid] = c
		case status.StopSignal() != unix.SIGTRAP && status.StopSignal() != unix.SIGSTOP:
			signal = int(status.StopSignal())
		}
	}
	_ = cmd.Wait() // has been waited for; this ends the copying of its output
	return status
}

// pathOf is the file that an argument of a stopped thread's call is about.
func pathOf(tid int, argument uint64, descriptor bool) (path string) {
	if descriptor {
		path, _ = filepath.EvalSymlinks(filepath.Join("/proc", strconv.Itoa(tid), "fd", strconv.Itoa(int(argument))))
		return path
	}
	text := make([]byte, 512)
	n, _ := unix.PtracePeekData(tid, uintptr(argument), text)
	path, _, _ = strings.Cut(string(text[:n]), "\x00")
	return path
}

// fileOf is the name of a path in reports.
func fileOf(path string) string {
	name := filepath.Base(path)
	if strings.HasPrefix(name, "run_") {
		return "run directory"
	}
	if i := slices.IndexFunc([]string{"kills", "Test", "00"},
		func(p string) bool { return strings.HasPrefix(name, p) }); i >= 0 {
		return "output folder"
	}
	return name
}
