package bench

import (
	"os/exec"
	"runtime"
	"syscall"
)

// runChild runs a program to its end. If this process is killed, the program ends too, and takes no processor from what
// is measured next.
func runChild(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the kernel takes the end of the thread that started a child for that of its parent
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	return cmd.Run()
}
