package stream

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// unharmed opens damaged files of which whole is what was written, and checks that every value that comes back is
// one that was stored at its place, and that what does not come back is reported. It returns how many packets came
// back.
func unharmed(t *testing.T, what string, whole *Reader, stream, index []byte) (good int) {
	t.Helper()
	r, err := newMemoryReader(bytes.NewReader(stream), int64(len(stream)), index)
	if err != nil {
		if !reported(err) {
			t.Fatalf("%s: %v", what, err)
		}
		return 0
	}
	were := map[int64]Packet{}
	for _, p := range whole.Packets() {
		were[p.Offset] = *p
	}
	for i, p := range r.Packets() {
		was, known := were[p.Offset]
		if was.Phase = p.Phase; !known || was != *p { // what resolves the phase may be what is damaged
			t.Fatalf("%s: packet %d was never written: %+v", what, i, p)
		}
		got, err := r.ReadInto(p, nil)
		if err != nil {
			if !reported(err) {
				t.Fatalf("%s: packet %d: %v", what, i, err)
			}
			continue
		}
		if want, err := whole.ReadInto(&was, nil); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: packet %d holds %x, want %x: %v", what, i, got, want, err)
		}
		good++
	}
	if err := r.Verify(nil); !reported(err) {
		t.Fatalf("%s: %d of %d packets are there, and Verify says %v", what, good, whole.Len(), err)
	}
	return good
}

// Rows within a bound have no other checksum than that of the index: it finds every flipped bit and every cut. So
// it is for each type of elements.
func TestDamagedRows(t *testing.T) {
	testenv.Once(t, "TestPages")
	step := 5
	if testenv.Nightly() {
		step = 1
	}
	c := newCapture(3, 3)
	for _, o := range []Options{
		{Codec: codec.Q, Bound: codec.Bound{Error: 1e-3}},
		{Codec: codec.Q, Bound: codec.Bound{Error: 1e-2, Metric: codec.NRMSE}},
		{Codec: codec.QFSE, Bound: codec.Bound{Error: 1e-3}},
		{Codec: codec.ZstdShuffle, DType: codec.F32},
		{Codec: codec.None, DType: codec.BF16},
	} {
		o.Workers = 1
		stream, index := c.files(t, o)
		whole := open(t, stream, index)
		for at := range stream {
			bad := bytes.Clone(stream)
			bad[at] ^= 1 << (at % 8)
			what := fmt.Sprintf("%v, %v: stream flipped at byte %d", o.Codec, o.DType, at)
			if good := unharmed(t, what, whole, bad, index); good != whole.Len()-1 {
				t.Fatalf("%s: %d of %d packets came back", what, good, whole.Len())
			}
			unharmed(t, fmt.Sprintf("%v: stream cut at byte %d", o.Codec, at), whole, stream[:at], index)
		}
		for at := 0; at < len(index); at += step {
			bad := bytes.Clone(index)
			bad[at] ^= 1 << (at % 8)
			unharmed(t, fmt.Sprintf("%v: index flipped at byte %d", o.Codec, at), whole, stream, bad)
			unharmed(t, fmt.Sprintf("%v: index cut at byte %d", o.Codec, at), whole, stream, index[:at])
		}
	}
}
