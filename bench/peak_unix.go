//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// peakOf is the peak resident memory of a process that has ended, or of the largest that it waited for.
func peakOf(cmd *exec.Cmd) int64 {
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss
	}
	return 0
}
