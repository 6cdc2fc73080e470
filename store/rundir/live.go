package rundir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// CreateLive opens a file of the run that can be read under its name while it is written: one of lines, that people
// follow. It is hashed while it is written. What was written stays and is recorded by Close, whatever fails; the
// error of the last Sync is Close's.
func (d *Dir) CreateLive(name string) (io.WriteCloser, error) {
	if name == ManifestName || !plainName(name) {
		return nil, fmt.Errorf("make %q: %w", name, ErrName)
	}
	file, err := d.begin(name, name)
	if err != nil {
		return nil, err
	}
	return &liveFile{dir: d, name: name, file: file, sum: sha256.New()}, nil
}

// liveFile is a file that is read while it is written.
type liveFile struct {
	dir  *Dir
	name string
	file *os.File
	sum  hash.Hash
	size int64
	done bool
}

func (f *liveFile) Write(p []byte) (int, error) {
	n, err := disk.write(f.file, p)
	f.sum.Write(p[:n])
	f.size += int64(n)
	f.dir.written.Add(int64(n))
	return n, err
}

func (f *liveFile) Close() error {
	if f.done {
		return nil
	}
	f.done = true
	defer f.dir.closed()
	err := errors.Join(disk.sync(f.file), f.file.Close())
	f.dir.AddSum(f.name, f.size, [32]byte(f.sum.Sum(nil)))
	if err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	return nil
}
