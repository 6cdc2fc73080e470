//go:build !linux

package bench

// monotonic is not known here, and nothing is recorded that it would be compared with.
func monotonic() int64 { return 0 }
