package stream

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nextData returns the first place of a file, from one on, at which data stands: its size, where a hole reaches to
// its end.
func nextData(f *os.File, at, size int64) (int64, error) { return seek(f, at, size, unix.SEEK_DATA) }

// nextHole returns the end of the data at an offset of a file.
func nextHole(f *os.File, at, size int64) (int64, error) { return seek(f, at, size, unix.SEEK_HOLE) }

// seek is lseek. A file system that knows no holes has data everywhere.
func seek(f *os.File, at, size int64, whence int) (int64, error) {
	found, err := unix.Seek(int(f.Fd()), at, whence)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL) && whence == unix.SEEK_DATA:
		return at, nil
	case errors.Is(err, unix.EINVAL):
		return size, nil
	case err != nil:
		return 0, os.NewSyscallError("lseek", err)
	}
	return min(found, size), nil
}
