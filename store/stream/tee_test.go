package stream

import (
	"bytes"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

// What the tee gets is both files, byte for byte, and never an index record of a packet that it did not get.
func TestTee(t *testing.T) {
	c := newCapture(40, 5)
	for _, workers := range []int{1, 3} {
		var stream, index bytes.Buffer
		calls := 0
		tee := func(toIndex bool, p []byte) {
			calls++
			if !toIndex {
				stream.Write(p)
				return
			}
			index.Write(p)
			x, err := scan(index.Bytes())
			if err != nil || x.totals.StreamBytes > int64(stream.Len()) {
				t.Errorf("call %d: the index describes %d bytes, and %d came: %v", calls, x.totals.StreamBytes,
					stream.Len(), err)
			}
		}
		s, x := c.files(t, Options{Workers: workers, Codec: codec.LZ4, Tee: tee})
		if !bytes.Equal(stream.Bytes(), s) || !bytes.Equal(index.Bytes(), x) {
			t.Errorf("%d workers: %d and %d bytes came of %d and %d, or others", workers, stream.Len(), index.Len(),
				len(s), len(x))
		}
	}
}
