//go:build unix

package stream

import "golang.org/x/sys/unix"

// monotonic reads CLOCK_MONOTONIC, the clock of Packet.MonoNS.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
