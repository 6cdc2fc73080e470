//go:build linux || darwin

package mrm

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// freeDisk is what is free on the file system that a folder lies on, or will; 0 where that is not known.
func freeDisk(dir string) int64 {
	for path, err := filepath.Abs(dir); err == nil; path = filepath.Dir(path) {
		var stat unix.Statfs_t
		if _, err := os.Stat(path); err == nil && unix.Statfs(path, &stat) == nil {
			return int64(stat.Bavail) * int64(stat.Bsize)
		}
		if path == filepath.Dir(path) {
			break
		}
	}
	return 0
}
