package perf

import "fmt"

// Ring walks over the records in a ring buffer, as the kernel fills it: positions count bytes since its beginning,
// forever, and a record may continue at the ring's begin.
type Ring struct {
	data []byte // a power of two
	tail uint64 // of the next record
	wrap []byte // a record that was torn
}

// newRing walks over data, whose length is a power of two, from a position on.
func newRing(data []byte, tail uint64) *Ring {
	return &Ring{data: data, tail: tail, wrap: make([]byte, 0, 1<<10)}
}

// Tail is the position of the next record.
func (r *Ring) Tail() uint64 { return r.tail }

// Next returns the next record before a position, nil if there is none. It is valid until the next call, and until the
// new tail is published to the kernel. After an error the rest up to head cannot be read.
func (r *Ring) Next(head uint64) ([]byte, error) {
	left := head - r.tail
	if left == 0 {
		return nil, nil
	}
	if left > uint64(len(r.data)) {
		return nil, fmt.Errorf("%w: a ring of %d bytes cannot hold %d", ErrRecord, len(r.data), left)
	}
	at := r.tail & uint64(len(r.data)-1)
	if left < headerSize || at+headerSize > uint64(len(r.data)) { // records are aligned to words
		return nil, fmt.Errorf("%w: %d bytes at %d of a ring are not a header", ErrRecord, left, at)
	}
	size, err := Size(r.data[at:])
	if err != nil {
		return nil, err
	}
	if uint64(size) > left || size%8 != 0 {
		return nil, fmt.Errorf("%w: %d of its %d bytes are in the ring", ErrRecord, left, size)
	}
	r.tail += uint64(size)
	if end := at + uint64(size); end > uint64(len(r.data)) {
		r.wrap = append(r.wrap[:0], r.data[at:]...)
		r.wrap = append(r.wrap, r.data[:end-uint64(len(r.data))]...)
		return r.wrap, nil
	}
	return r.data[at : at+uint64(size)], nil
}

// Skip goes to a position, after an error.
func (r *Ring) Skip(head uint64) { r.tail = head }
