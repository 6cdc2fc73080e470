package stream

import (
	"bytes"
	"io"
)

// newMemoryReader returns a reader of a stream of that size and its index, which it keeps. Like OpenDamaged it takes
// what it can get.
func newMemoryReader(stream io.ReaderAt, size int64, index []byte) (*Reader, error) {
	x, err := scan(index)
	if err != nil {
		return nil, err
	}
	return newReader(stream, size, x), nil
}

// scan is scanFile of an index in memory.
func scan(data []byte) (*index, error) { return scanFile(bytes.NewReader(data), int64(len(data))) }

// resume is Examine followed by Kept.Resume.
func resume(path string, upTo *Mark, o Options) (*Writer, *Kept, error) {
	k, err := Examine(path, upTo)
	if err != nil {
		return nil, nil, err
	}
	w, err := k.Resume(o)
	if err != nil {
		return nil, nil, err
	}
	return w, k, nil
}
