//go:build linux

package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/store/rundir"
)

// reserve is room on the disk that is kept for sealing the run when nothing else fits any more: a file without a
// name, that vanishes with this process.
type reserve struct {
	file *os.File
	size int64
}

// newReserve keeps n bytes in the folder. A file system that cannot promise room gives none, and that is no error.
func newReserve(dir *rundir.Dir, n int64) (*reserve, error) {
	file, err := dir.Scratch()
	if err != nil {
		return nil, err
	}
	r := &reserve{file: file}
	if err := r.grow(n); err != nil {
		r.release()
		return nil, err
	}
	return r, nil
}

// grow makes the reserve n bytes large, if it is smaller, and a little larger, so that it need not grow often.
func (r *reserve) grow(n int64) error {
	if r == nil || r.file == nil || n <= r.size {
		return nil
	}
	n = (n + sealRoom - 1) / sealRoom * sealRoom
	err := unix.Fallocate(int(r.file.Fd()), 0, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err == nil {
		r.size = n
	}
	return err
}

// held is the size of the reserve.
func (r *reserve) held() int64 {
	if r == nil || r.file == nil {
		return 0
	}
	return r.size
}

// release gives the room back.
func (r *reserve) release() {
	if r != nil && r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
