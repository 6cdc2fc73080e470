package stream

import (
	"bufio"
	"fmt"
	"io"
)

// walker reads an index file record by record. It holds one of them, and of those before what many refer to: nodes,
// losses, resolutions.
type walker struct {
	in       *bufio.Reader
	size     int64 // of the file
	buf      []byte
	at       int64 // end of what was read
	sequence uint32
	chain    uint32
	index    *index // what was read; nil: records are not looked into
	err      error  // of reading the file
}

// walkBuffer is how much of an index is read at a time.
const walkBuffer = 256 << 10

// walk begins after the header.
func walk(f io.ReaderAt, size int64) (*walker, error) {
	w := &walker{in: bufio.NewReaderSize(io.NewSectionReader(f, 0, size), walkBuffer), size: size, at: headerSize}
	head, err := w.in.Peek(headerSize)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("index header: %w", err)
	}
	h, chain, err := parseHeader(head)
	if err != nil {
		return nil, err
	}
	w.in.Discard(headerSize)
	w.chain, w.index = chain, newIndex(h, nil, 0)
	w.index.slim = true
	return w, nil
}

// next returns the next record, which is valid until the one after it; false where there is no whole and sound one,
// or the file could not be read.
func (w *walker) next() (record, bool) {
	if w.err != nil || w.size-w.at < recordHeader {
		return record{}, false
	}
	head, err := w.in.Peek(recordHeader)
	if err != nil {
		w.err = err
		return record{}, false
	}
	n, _ := recordSize(head)
	if int64(n) > w.size-w.at {
		return record{}, false
	}
	if cap(w.buf) < n {
		w.buf = make([]byte, n+n/2)
	}
	if _, w.err = io.ReadFull(w.in, w.buf[:n]); w.err != nil {
		return record{}, false
	}
	r, ok := parseRecord(w.buf[:n])
	if !ok || r.sequence != w.sequence || !r.follows(w.chain) || w.index != nil && w.index.addRecord(r, w.at) != nil {
		return record{}, false
	}
	w.at, w.sequence, w.chain = w.at+int64(n), w.sequence+1, r.crc
	return r, true
}
