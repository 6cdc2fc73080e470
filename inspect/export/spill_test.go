package export

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// Rows that are smaller and larger than the buffer are in the file as they came, and counted as waiting until then.
func TestSpill(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var waiting atomic.Int64
	s := spill{path: filepath.Join(t.TempDir(), "a"), limit: 2 * stream.BlockAlign, waiting: &waiting}
	check(t, os.WriteFile(s.path, nil, 0o600))
	var want, scratch []byte
	for i := range 300 {
		p := &piece{}
		p.Shape, p.DType = []int64{1 + r.Int64N(1000)}, codec.F32
		p.Outer = 1
		if i%20 == 0 {
			p.Shape[0] *= 10
		}
		data := make([]byte, 3*p.rowBytes())
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		row := r.Int64N(3)
		head := []byte{byte(i), 1, 2}
		want = append(append(want, head...), data[row*p.rowBytes():(row+1)*p.rowBytes()]...)
		var err error
		scratch, err = s.row(head, p, data, row, scratch)
		check(t, err)
		info, err := os.Stat(s.path)
		check(t, err)
		if info.Size()+waiting.Load() != int64(len(want)) {
			t.Fatalf("row %d: %d bytes are in the file and %d wait, of %d", i, info.Size(), waiting.Load(), len(want))
		}
	}
	check(t, s.flush(0))
	if got, err := os.ReadFile(s.path); err != nil || !bytes.Equal(got, want) || waiting.Load() != 0 {
		t.Errorf("%d bytes of %d, %d wait, %v", len(got), len(want), waiting.Load(), err)
	}

	s.path = filepath.Join(t.TempDir(), "none")
	s.buffer = append(s.buffer, 1)
	if err := s.flush(0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
