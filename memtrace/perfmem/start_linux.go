package perfmem

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a command and samples it from its first instruction on: it is held at its execve until events are open. If they cannot be, it is
// killed, so that nothing runs unseen. The command must not have been started; wait for it as usual.
func Start(cmd *exec.Cmd, o Options) (*Sampler, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	o.PID = cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(o.PID, &status, 0, nil); err != nil || !status.Stopped() {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, fmt.Errorf("hold %s at its start: status %#x: %w", cmd.Path, uint32(status), err)
	}
	s, err := Open(o)
	if err == nil {
		if err = unix.PtraceDetach(o.PID); err != nil {
			err = fmt.Errorf("let %s go: %w", cmd.Path, err)
			s.Close()
		}
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	return s, nil
}
