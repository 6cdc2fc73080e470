//go:build !unix

package bench

// pageFaults is not known here.
func pageFaults() (minor, major int64, ok bool) { return 0, 0, false }
