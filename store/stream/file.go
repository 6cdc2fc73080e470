package stream

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"unsafe"
)

// IndexSuffix is what the index's name adds to the stream's.
const IndexSuffix = ".idx"

// File is what a [Writer] writes to. An *os.File is one.
type File interface {
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

// blockFile is a file that is written past the page cache: whole blocks of BlockAlign bytes, from memory that is
// aligned to that as well, and, through the cache, a tail that fills no block and is written again with the block
// that it begins.
type blockFile interface {
	File
	WriteBlocks(p []byte, at int64) error
	WriteTail(p []byte, at int64) error
}

// BlockAlign is a multiple of every disk's block and memory alignment, in bytes.
const BlockAlign = 4096

// AlignedBuffer makes an empty buffer of n bytes whose memory begins at a multiple of BlockAlign, for direct writes.
func AlignedBuffer(n int) []byte {
	b := make([]byte, n+BlockAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (BlockAlign - 1)
	return b[skip : skip : skip+n]
}

// Sum is the size and hash of a finished file, for the manifest of a run.
type Sum struct {
	Size   int64
	SHA256 [32]byte
}

// output collects what is written to a file into large writes, and hashes it. It has one user at a time.
//
// A file that takes blocks gets whole ones; what fills no block stays in the buffer, also when a flush has put it
// into the file already, because the next write of that block begins with it.
type output struct {
	name    string
	file    File
	blocks  blockFile // file, if it is one
	buf     []byte
	hash    hash.Hash   // of what left the buffer
	size    int64       // of what was written and left the buffer
	tail    int         // bytes at the buffer's beginning that are in the file as well
	behind  *behind     // if set, what leaves the buffer is written and hashed elsewhere
	current *chunk      // that buf belongs to, then
	ahead   *ahead      // room that is kept for it; nil: none can be
	relief  func() bool // if set: makes room on a full disk, and reports whether there was some to be had
}

func newOutput(name string, file File, buffer int) *output {
	o := &output{name: name, file: file, hash: sha256.New()}
	o.blocks, _ = file.(blockFile)
	o.buf = o.newBuffer(buffer)
	return o
}

func (o *output) newBuffer(n int) []byte {
	if o.blocks != nil {
		return AlignedBuffer(n)
	}
	return make([]byte, 0, n)
}

// end is the place of the next byte.
func (o *output) end() int64 { return o.size + int64(len(o.buf)) }

// fits reports whether n more bytes go into the buffer.
func (o *output) fits(n int) bool { return len(o.buf)+n <= cap(o.buf) }

func (o *output) write(p []byte) error {
	for !o.fits(len(p)) {
		n := cap(o.buf) - len(o.buf)
		o.buf = append(o.buf, p[:n]...)
		p = p[n:]
		if err := o.put(len(o.buf)); err != nil {
			return err
		}
	}
	o.buf = append(o.buf, p...)
	return nil
}

// flush puts everything into the file.
func (o *output) flush() error {
	whole := len(o.buf)
	if o.blocks != nil {
		whole -= whole % BlockAlign
	}
	if whole > 0 {
		if err := o.put(whole); err != nil {
			return err
		}
	}
	if o.behind != nil {
		if err := o.behind.settle(); err != nil {
			return err
		}
	}
	if len(o.buf) == o.tail {
		return nil
	}
	if err := o.blocks.WriteTail(o.buf, o.size); err != nil {
		return o.failed(err, o.size)
	}
	o.tail = len(o.buf)
	return nil
}

// put writes the first n bytes of the buffer, or has them written, and moves the rest of it to the front.
func (o *output) put(n int) error {
	if o.behind != nil {
		if err := o.behind.error(); err != nil {
			return err
		}
		rest := o.buf[n:]
		o.current.buf, o.current.at = o.buf[:n], o.size
		next := o.behind.next(o.current) // rest is as it was until the chunk comes round again
		o.buf = append(next.buf[:0], rest...)
		o.current = next
	} else {
		if err := o.writeAt(o.buf[:n], o.size); err != nil {
			return err
		}
		o.hash.Write(o.buf[:n])
		o.buf = o.buf[:copy(o.buf, o.buf[n:])]
	}
	o.size += int64(n)
	o.tail = 0
	return nil
}

func (o *output) failed(err error, at int64) error {
	return fmt.Errorf("write %s at byte %d: %w", o.name, at, err)
}

func (o *output) sync() error {
	if err := o.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.name, err)
	}
	return nil
}

func (o *output) close() error {
	if o.behind != nil {
		o.behind.stop()
	}
	o.ahead.release()
	if err := o.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", o.name, err)
	}
	return nil
}

// sum is to be had once, when everything was flushed and closed.
func (o *output) sum() Sum {
	s := Sum{Size: o.end()}
	o.hash.Write(o.buf)
	o.buf, o.size = o.buf[:0], s.Size
	o.hash.Sum(s.SHA256[:0])
	return s
}
