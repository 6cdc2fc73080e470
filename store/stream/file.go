package stream

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
)

// IndexSuffix is what the index's name adds to the stream's.
const IndexSuffix = ".idx"

// File is what a [Writer] writes to. An *os.File is one.
type File interface {
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

// Sum is the size and hash of a finished file, for the manifest of a run.
type Sum struct {
	Size   int64
	SHA256 [32]byte
}

// output collects what is written to a file into large writes, and hashes it. It has one user at a time.
type output struct {
	name string
	file File
	buf  []byte
	hash hash.Hash
	size int64 // of the file, without what is in buf
}

func newOutput(name string, file File, buffer int) *output {
	return &output{name: name, file: file, buf: make([]byte, 0, buffer), hash: sha256.New()}
}

// fits tells whether n more bytes go into the buffer.
func (o *output) fits(n int) bool { return len(o.buf)+n <= cap(o.buf) }

func (o *output) write(p []byte) error {
	if !o.fits(len(p)) {
		if err := o.flush(); err != nil {
			return err
		}
	}
	if !o.fits(len(p)) {
		return o.put(p)
	}
	o.buf = append(o.buf, p...)
	return nil
}

func (o *output) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	err := o.put(o.buf)
	o.buf = o.buf[:0]
	return err
}

func (o *output) put(p []byte) error {
	n, err := o.file.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write %s at byte %d: %w", o.name, o.size+int64(n), err)
	}
	o.hash.Write(p)
	o.size += int64(n)
	return nil
}

func (o *output) sync() error {
	if err := o.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.name, err)
	}
	return nil
}

func (o *output) close() error {
	if err := o.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", o.name, err)
	}
	return nil
}

func (o *output) sum() Sum {
	s := Sum{Size: o.size}
	o.hash.Sum(s.SHA256[:0])
	return s
}
