package stream

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

// countingReader counts the reads of a stream.
type countingReader struct {
	io.ReaderAt
	reads atomic.Int64
}

func (c *countingReader) ReadAt(p []byte, at int64) (int, error) {
	c.reads.Add(1)
	return c.ReaderAt.ReadAt(p, at)
}

// TestOneReadPerTensor holds that opening a stream reads nothing of it, and each tensor, wherever it lies, takes
// one read.
func TestOneReadPerTensor(t *testing.T) {
	c := newCapture(20, 3)
	for _, id := range []codec.ID{codec.None, codec.Zstd} {
		stream, index := c.files(t, Options{Codec: id})
		file := &countingReader{ReaderAt: bytes.NewReader(stream)}
		r, err := newMemoryReader(file, int64(len(stream)), index)
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		for _, i := range []int{r.Len() - 1, 0, r.Len() / 2} {
			before := file.reads.Load()
			if err := r.Packet(i, &p); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadInto(&p, nil); err != nil {
				t.Fatal(err)
			}
			if n := file.reads.Load() - before; n != 1 {
				t.Errorf("%v, packet %d: %d reads", id, i, n)
			}
		}
		if n := file.reads.Load(); n != 3 {
			t.Errorf("%v: %d reads for three tensors", id, n)
		}
	}
}
