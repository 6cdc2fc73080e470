package filemap

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keyOf returns the key of a file.
func keyOf(path string) (fileKey, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return fileKey{}, fmt.Errorf("%s: %w", path, err)
	}
	dev := uint64(s.Dev)
	return fileKey{unix.Major(dev)<<20 | unix.Minor(dev), s.Ino}, nil
}
