//go:build !unix

package stream

// monotonic is 0 where nothing is recorded.
func monotonic() int64 { return 0 }
