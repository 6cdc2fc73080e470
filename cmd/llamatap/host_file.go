//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lineFile appends lines to a file that may hold some already. It holds whole lines back, never part of one: whatever
// ends this process, the file ends with a line feed, as far as the disk has room.
type lineFile struct {
	file  *os.File
	batch int  // lines that are held back at most before they are written; 1 at least
	sync  bool // each write is brought to the disk before it counts as done
	held  bytes.Buffer
	n     int
	size  int64 // of what was written whole
}

// appendLines opens a file to append to, with mode 0600 where it is new. A last line that somebody left unfinished gets
// its line feed, so that it spoils no other. A file that cannot be appended to, such as a pipe, is taken as it is.
func appendLines(path string, batch int, sync bool) (*lineFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EACCES) {
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; choose another file with --output, or print the lines with --no-output", err)
	}
	f := &lineFile{file: file, batch: batch, sync: sync}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if f.size = info.Size(); !info.Mode().IsRegular() || f.size == 0 {
		return f, nil
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, f.size-1); err == nil && last[0] != '\n' {
		f.held.WriteByte('\n')
		return f, f.flush()
	}
	return f, nil
}

// Append holds a line, and writes what is held when it is enough.
func (f *lineFile) Append(line []byte) error {
	f.held.Write(line)
	f.held.WriteByte('\n')
	if f.n++; f.n < f.batch {
		return nil
	}
	return f.flush()
}

// flush writes what is held. Of a write that a full disk cut short the part that came through is taken back, and
// all is held on.
func (f *lineFile) flush() error {
	if f.held.Len() == 0 {
		return nil
	}
	n, err := f.file.Write(f.held.Bytes())
	if err != nil {
		if n > 0 {
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return fmt.Errorf("%w; free room there, or choose another file with --output", err)
	}
	f.size += int64(n)
	f.held, f.n = bytes.Buffer{}, 0 // a line of many threads takes megabytes, and may be the only one
	if f.sync {
		if err := f.file.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
			return err
		}
	}
	return nil
}

// Close writes what is held and closes the file.
func (f *lineFile) Close() error {
	return errors.Join(f.flush(), f.file.Close())
}

// linePrinter writes each line at once.
type linePrinter struct{ to io.Writer }

// Append writes a line.
func (p linePrinter) Append(line []byte) error {
	_, err := p.to.Write(append(line[:len(line):len(line)], '\n'))
	return err
}
