//go:build !unix

package stream

// MonoNS is 0 where nothing is recorded.
func MonoNS() int64 { return 0 }
