package bench

import (
	"os/exec"
	"runtime"
	"syscall"
)

// StartChild starts a program, whose end comes on the channel. If this process is killed, the program is sent a
// SIGTERM, and takes no processor from what is measured next.
func StartChild(cmd *exec.Cmd) (ended <-chan error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	began, end := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel takes the end of the thread that started a child for that of its parent
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		began <- err
		if err == nil {
			end <- cmd.Wait()
		}
	}()
	return end, <-began
}
