package rundir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Errors of opening a file of a run for reading.
var (
	ErrNotRegular = errors.New("not a regular file") // a link, FIFO, socket, device or folder
	ErrTooLarge   = errors.New("too large")
)

// MaxDocument bounds the JSON documents of a run that are read as a whole: metadata, manifest, checkpoint.
// Manifests of thousands of segments take a few MiB.
const MaxDocument = 64 << 20

// MaxSkip bounds what is read of one line in search of its end, in bytes. Of a file with a longer one, such as a
// sparse file of many GiB, nothing more is read.
const MaxSkip = 256 << 20

// OpenFile opens a file of a run for reading. Run directories come from anywhere, so only a regular file is opened,
// links are not followed, and opening never waits: anything else is ErrNotRegular.
func OpenFile(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w: remove it or replace it by the file itself", path, ErrNotRegular)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if after, err := file.Stat(); err != nil || !os.SameFile(before, after) {
		return nil, errors.Join(fmt.Errorf("open %s: %w: it was replaced while it was opened", path, ErrNotRegular),
			err, file.Close())
	}
	return file, nil
}

// ReadFile reads a file of a run that OpenFile opens, as a whole. One of more than limit bytes is ErrTooLarge, and
// not read.
func ReadFile(path string, limit int64) ([]byte, error) {
	file, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("read %s: %w: it has %d bytes, and such a file has at most %d", path, ErrTooLarge,
			info.Size(), limit)
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(file, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // it was cut off meanwhile
	}
	return data[:n], err
}
