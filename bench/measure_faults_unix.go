//go:build unix

package bench

import "syscall"

// pageFaults are the page faults of this process so far.
func pageFaults() (minor, major int64, ok bool) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, 0, false
	}
	return int64(usage.Minflt), int64(usage.Majflt), true
}
