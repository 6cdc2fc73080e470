package perf

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartHeld starts a command and holds it at its execve, before its first instruction, until ready returns: whoever
// watches it misses nothing of it, nor of what it starts. If ready fails, it is killed, so that nothing runs
// unseen, and that error is returned. The command must not have been started; wait for it as usual.
func StartHeld(cmd *exec.Cmd, ready func(pid int) error) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	_, err := unix.Wait4(pid, &status, 0, nil)
	if err != nil || !status.Stopped() {
		err = fmt.Errorf("hold %s at its start: status %#x: %w", cmd.Path, uint32(status), err)
	} else if err = ready(pid); err == nil {
		if err = unix.PtraceDetach(pid); err == nil {
			return nil
		}
		err = fmt.Errorf("let %s go: %w", cmd.Path, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return err
}
