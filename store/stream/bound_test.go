package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

// Rows of F32 come back within the bound, also a sample and an empty tensor; everything else as it was.
func TestBoundedStream(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	const row, rows = 300, 4
	values := make([]float32, row*rows)
	for i := range values {
		values[i] = float32(r.NormFloat64()) * float32(1+i/row)
	}
	data := f32(values...)
	packets := []Packet{
		{Name: "rows", NE: [4]int64{row, rows, 1, 1}},
		{Name: "sample", NE: [4]int64{row, rows, 1, 1}, SampleTotal: 7 * row},
		{Name: "ints", SrcType: ggmlI32, NE: [4]int64{row, rows, 1, 1}},
		{Name: "empty", NE: [4]int64{row, 0, 1, 1}},
	}
	source := [][]byte{data, data[:4*77], data, nil}
	for _, id := range []codec.ID{codec.Q, codec.QFSE} {
		s, x := newMemory(), newMemory()
		w, err := New(s, x, Options{Codec: id, Bound: codec.Bound{Error: 1e-2}, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i := range packets {
			if err := w.Append(&packets[i], source[i], nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if e := w.Stats().Error; e.MaxAbs <= 0 || e.MaxAbs > 1e-2 || e.NRMSE <= 0 {
			t.Errorf("%v: errors %+v", id, e)
		}
		reader := open(t, s.Bytes(), x.Bytes())
		if err := reader.Verify(nil); err != nil {
			t.Error(err)
		}
		for i, p := range reader.Packets() {
			got, err := reader.ReadInto(p, nil)
			switch {
			case err != nil || len(got) != len(source[i]):
				t.Errorf("%v, %s: %d bytes of %d, %v", id, p.Name, len(got), len(source[i]), err)
			case p.Name == "ints" && (p.Codec != codec.LZ4 || !bytes.Equal(got, data)):
				t.Errorf("%v: %v of what is no F32 is not what it was", id, p.Codec)
			case p.Name == "rows" || p.Name == "sample":
				if p.Codec != id || p.DType != codec.F32 || p.Stored > p.RawBytes/2 {
					t.Errorf("%v, %s: %v of %v, %d bytes of %d", id, p.Name, p.Codec, p.DType, p.Stored, p.RawBytes)
				}
				near(t, source[i], got, row)
			}
		}
	}
}

// A resumed stream has the error of what was kept.
func TestResumeBounded(t *testing.T) {
	path, o := filepath.Join(t.TempDir(), "a.stream"), Options{Codec: codec.Q, Bound: codec.Bound{Error: 1e-2}}
	w, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 64)
	for i := range values {
		values[i] = float32(i * i % 37)
	}
	err = w.Append(&Packet{Name: "rows", NE: [4]int64{64, 1, 1, 1}}, f32(values...), nil)
	if err := errors.Join(err, w.Commit(), w.Close()); err != nil {
		t.Fatal(err)
	}
	want := w.Stats().Error
	if w, _, err = resume(path, nil, o); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.Stats().Error; got != want || got.MaxAbs <= 0 {
		t.Errorf("errors %+v of %+v", got, want)
	}
}

// near checks a bound of 1e-2 row by row; what is shorter is one row.
func near(t *testing.T, want, got []byte, row int) {
	t.Helper()
	f := func(b []byte, i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	for first := 0; 4*first < len(want); first += row {
		most, worst := 0.0, 0.0
		for i := first; i < min(first+row, len(want)/4); i++ {
			most, worst = max(most, math.Abs(f(want, i))), max(worst, math.Abs(f(want, i)-f(got, i)))
		}
		if worst > 1e-2*most {
			t.Errorf("row from value %d: error %g of %g", first, worst, most)
		}
	}
}
