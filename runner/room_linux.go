package runner

import (
	"math"

	"golang.org/x/sys/unix"
)

// freeBytes returns how many bytes the file system of path has left.
func freeBytes(path string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return math.MaxInt64
	}
	return int64(s.Bavail) * s.Bsize
}
