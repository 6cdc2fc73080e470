package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// decoder reads little-endian fields from a stream and knows where it is. Its first error sticks; after it every
// read gives zero.
type decoder struct {
	r    *bufio.Reader
	pos  int64 // bytes read so far
	size int64 // of the file, -1 when unknown
	err  error
	buf  [8]byte
}

// fail keeps the first error.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) malformed(format string, args ...any) {
	d.fail(fmt.Errorf("%w: at byte %d: "+format, append([]any{ErrMalformed, d.pos}, args...)...))
}

// full reads exactly len(p) bytes; after an error p is zeros.
func (d *decoder) full(p []byte) bool {
	if d.err != nil {
		clear(p)
		return false
	}
	n, err := io.ReadFull(d.r, p)
	d.pos += int64(n)
	if err == nil {
		return true
	}
	clear(p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends at byte %d inside the header", ErrTruncated, d.pos)
	}
	d.fail(err)
	return false
}

func (d *decoder) u8() uint8 {
	d.full(d.buf[:1])
	return d.buf[0]
}

func (d *decoder) u32() uint32 {
	d.full(d.buf[:4])
	return binary.LittleEndian.Uint32(d.buf[:])
}

func (d *decoder) u64() uint64 {
	d.full(d.buf[:8])
	return binary.LittleEndian.Uint64(d.buf[:])
}

// count reads a number of things of at least each bytes and refuses one that the rest of the file cannot hold.
func (d *decoder) count(what string, each int64) int64 {
	at := d.pos
	n := d.u64()
	switch {
	case d.err != nil:
		return 0
	case n > math.MaxInt64/16:
		d.malformed("%s %d is not a possible number", what, n)
		return 0
	case d.size >= 0 && int64(n) > (d.size-d.pos)/each:
		d.fail(fmt.Errorf("%w: %s %d at byte %d needs more than the %d bytes that are left",
			ErrTruncated, what, n, at, d.size-d.pos))
		return 0
	}
	return int64(n)
}

// stringChunk bounds what is allocated on the word of a length field alone.
const stringChunk = 64 << 10

func (d *decoder) str() string {
	n := d.count("string length", 1)
	if d.err != nil {
		return ""
	}
	p := make([]byte, min(n, stringChunk))
	if !d.full(p) {
		return ""
	}
	for int64(len(p)) < n && d.err == nil {
		at := len(p)
		p = append(p, make([]byte, min(n-int64(at), int64(at)))...)
		d.full(p[at:])
	}
	if d.err != nil {
		return ""
	}
	return string(p)
}

func (d *decoder) boolean() bool {
	b := d.u8()
	if b > 1 {
		d.malformed("bool with value %d", b)
	}
	return b == 1
}

func (d *decoder) value(key string) Value {
	t := ValueType(d.u32())
	if t == Array {
		return d.array(key)
	}
	if int64(t) >= int64(len(kinds)) {
		d.malformed("key %q has unknown %v", key, t)
		return Value{}
	}
	return kinds[t].read(d)
}

func (d *decoder) array(key string) Value {
	elem := ValueType(d.u32())
	if elem == Array || int64(elem) >= int64(len(kinds)) {
		d.malformed("key %q is an array of %v; only arrays of numbers, bools and strings are known", key, elem)
		return Value{}
	}
	n := d.count(fmt.Sprintf("array length of key %q", key), kinds[elem].bytes)
	return kinds[elem].readArray(d, n)
}

// arrayChunk bounds the elements that are allocated on the word of a length field alone.
const arrayChunk = 4096

// readEach reads n values one by one; memory grows with what has been read, not with n.
func readEach[T any](d *decoder, n int64, one func(*decoder) T) []T {
	out := make([]T, 0, min(n, arrayChunk))
	for i := int64(0); i < n && d.err == nil; i++ {
		out = append(out, one(d))
	}
	return out
}

// readNumbers reads n numbers chunk by chunk, with readEach's bound of memory.
func readNumbers[T any](d *decoder, n int64) []T {
	out := []T{}
	var raw []byte
	for int64(len(out)) < n {
		at := len(out)
		out = append(out, make([]T, min(n-int64(at), arrayChunk))...)
		raw = append(raw[:0], make([]byte, binary.Size(out[at:]))...)
		if !d.full(raw) {
			return out[:at]
		}
		binary.Decode(raw, binary.LittleEndian, out[at:])
	}
	return out
}
