package stream

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// blocks is a file written past the page cache, whose pages cost more time than everything else that is done with a
// captured tensor.
type blocks struct {
	*os.File          // through the cache
	direct   *os.File // past it; nil once the file system has refused
}

// createBlocks makes a file that must not exist. Where the file system knows no direct writes, it is an ordinary one.
func createBlocks(path string) (File, error) {
	return openBlocks(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

func openBlocks(path string, flags int) (File, error) {
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	direct, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return file, nil
	}
	return &blocks{File: file, direct: direct}, nil
}

// WriteBlocks writes whole blocks. A file system that takes the flag and refuses the write gets it through the
// cache, as everything after it.
func (b *blocks) WriteBlocks(p []byte, at int64) error {
	if b.direct == nil {
		return b.WriteTail(p, at)
	}
	_, err := b.direct.WriteAt(p, at)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	_ = b.direct.Close()
	b.direct = nil
	return b.WriteTail(p, at)
}

// WriteTail writes through the cache.
func (b *blocks) WriteTail(p []byte, at int64) error {
	_, err := b.WriteAt(p, at)
	return err
}

// Allocate keeps blocks for so many bytes from a place on, and leaves the file's size as it is.
func (b *blocks) Allocate(at, n int64) error {
	for {
		if err := unix.Fallocate(int(b.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, n); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Trim gives back the blocks after the file's end.
func (b *blocks) Trim() error {
	info, err := b.Stat()
	if err != nil {
		return err
	}
	return b.Truncate(info.Size())
}

// Free is what the file system has left for us.
func (b *blocks) Free() (int64, error) {
	var fs unix.Statfs_t
	err := unix.Fstatfs(int(b.Fd()), &fs)
	return int64(fs.Bavail) * fs.Frsize, err
}

// Close closes both descriptors. What was written past the cache needs no [os.File.Sync] of its own: both are one file.
func (b *blocks) Close() error {
	var err error
	if b.direct != nil {
		err = b.direct.Close()
	}
	return errors.Join(err, b.File.Close())
}
