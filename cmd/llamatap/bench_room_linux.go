package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// roomFor is how large a file may become that is written to a folder's disk: a quarter of what is free there.
func roomFor(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("folder %s: %w", dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize / 4, nil
}
