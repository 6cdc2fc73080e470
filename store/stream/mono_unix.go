//go:build unix

package stream

import "golang.org/x/sys/unix"

// MonoNS reads CLOCK_MONOTONIC in nanoseconds, the clock of Packet.MonoNS, which every process has in common; 0 where
// it cannot be read.
func MonoNS() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
