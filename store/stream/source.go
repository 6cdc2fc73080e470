package stream

import (
	"bytes"
	"io"
)

// sourceBuffer is how much of an index is read at a time.
const sourceBuffer = 256 << 10

// source reads an index forwards, a window of it at a time.
type source struct {
	in   io.ReaderAt
	size int64
	from int64 // where the window begins
	buf  []byte
	err  error // of reading; it stays
}

// bytes returns n bytes from a place on, or what there is of them. They are valid until the next call.
func (s *source) bytes(at int64, n int) []byte {
	if n = int(min(int64(n), s.size-at)); n <= 0 || s.err != nil {
		return nil
	}
	if at < s.from || at+int64(n) > s.from+int64(len(s.buf)) {
		if s.fill(at, n); s.err != nil {
			return nil
		}
	}
	return s.buf[at-s.from:][:n:n]
}

// fill moves the window to a place, and makes it n bytes large at least. One that is larger than usual is given up
// with the next.
func (s *source) fill(at int64, n int) {
	want := int(min(int64(max(n, sourceBuffer)), s.size-at))
	if cap(s.buf) < want || cap(s.buf) > max(want, sourceBuffer) {
		s.buf = make([]byte, want)
	}
	s.from, s.buf = at, s.buf[:want]
	s.err = readAt(s.in, s.buf, at)
}

// zeroBlock is what zeros compares with.
var zeroBlock [4 << 10]byte

// zeros returns how many zero bytes there are at a place at least, in whole blocks: a file may have a hole of
// gigabytes.
func (s *source) zeros(at int64) (n int64) {
	window := s.bytes(at, len(zeroBlock))
	for len(window) == len(zeroBlock) && bytes.Equal(window, zeroBlock[:]) {
		n += int64(len(zeroBlock))
		window = s.bytes(at+n, len(zeroBlock))
	}
	return n
}

// record returns the record at a place; false if the file is too short for it. It is valid until the next call.
func (s *source) record(at int64) (record, bool) {
	n, ok := recordSize(s.bytes(at, recordHeader))
	if !ok || int64(n) > s.size-at {
		return record{}, false
	}
	return parseRecord(s.bytes(at, n))
}
