package ledger

import (
	"math/rand/v2"
	"testing"
)

// touched is which bytes a tensor has, found out element by element.
func touched(e *extent) map[uint64]bool {
	all := map[uint64]bool{}
	for i3 := range e.ne[3] {
		for i2 := range e.ne[2] {
			for i1 := range e.ne[1] {
				for i0 := range e.ne[0] {
					at := e.offset + uint64(i0)*e.nb[0] + uint64(i1)*e.nb[1] + uint64(i2)*e.nb[2] + uint64(i3)*e.nb[3]
					for b := range e.block {
						all[at+b] = true
					}
				}
			}
		}
	}
	return all
}

// same demands that spans are just those bytes, each once.
func same(t *testing.T, e *extent, spans []span) {
	t.Helper()
	want := touched(e)
	sum := uint64(0)
	for _, s := range spans {
		sum += s.size()
		for p := range s.pieces {
			for b := range s.run {
				if at := s.offset + uint64(p)*s.stride + b; !want[at] {
					t.Fatalf("%+v: byte %d is none of it: %+v", e, at, spans)
				}
			}
		}
	}
	if sum != uint64(len(want)) {
		t.Fatalf("%+v: %d bytes, of %d: %+v", e, sum, len(want), spans)
	}
}

func TestSpans(t *testing.T) {
	for name, c := range map[string]struct {
		e    extent
		want []span
	}{
		"one piece": {extent{8, 4, [4]int64{3, 5, 7, 2}, [4]uint64{4, 12, 60, 420}},
			[]span{{offset: 8, run: 840, pieces: 1}}},
		"a block": {extent{8, 34, [4]int64{1, 1, 1, 1}, [4]uint64{34, 34, 34, 34}},
			[]span{{offset: 8, run: 34, pieces: 1}}},
		"columns": {extent{0, 4, [4]int64{2, 5, 1, 1}, [4]uint64{4, 20, 100, 100}},
			[]span{{offset: 0, run: 8, pieces: 5, stride: 20}}},
		"permuted": {extent{0, 4, [4]int64{2, 5, 3, 1}, [4]uint64{4, 24, 8, 120}},
			[]span{{offset: 0, run: 120, pieces: 1}}},
		"heads of columns": {extent{0, 2, [4]int64{6, 4, 3, 1}, [4]uint64{2, 64, 256, 768}},
			[]span{{offset: 0, run: 12, pieces: 12, stride: 64}}},
		"planes of columns": {extent{0, 2, [4]int64{6, 4, 2, 1}, [4]uint64{2, 64, 1024, 2048}},
			[]span{{offset: 0, run: 12, pieces: 4, stride: 64}, {offset: 1024, run: 12, pieces: 4, stride: 64}}},
		"broadcast": {extent{0, 4, [4]int64{4, 9, 1, 1}, [4]uint64{4, 0, 0, 0}},
			[]span{{offset: 0, run: 16, pieces: 1}}},
		"sliding window": {extent{0, 4, [4]int64{4, 9, 1, 1}, [4]uint64{4, 4, 36, 36}},
			[]span{{offset: 0, run: 48, pieces: 1}}},
	} {
		got := c.e.spans(nil)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
		same(t, &c.e, got)
	}
	many := extent{0, 4, [4]int64{2, 300, 300, 1}, [4]uint64{4, 100, 100001, 1}}
	if got := many.spans(nil); len(got) != 1 || !got[0].scattered || got[0].size() != 2*300*300*4 {
		t.Errorf("%+v", got)
	}
}

// TestSpansOfAny: whatever the layout, spans are the bytes of the tensor, each once.
func TestSpansOfAny(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		e := extent{offset: random.Uint64N(100), block: 1 + random.Uint64N(4)}
		order := random.Perm(4)
		stride := e.block
		for _, d := range order { // dimensions lie in each other in any order, with gaps
			e.ne[d], e.nb[d] = 1+random.Int64N(4), stride
			stride = stride*uint64(e.ne[d]) + uint64(random.IntN(2))*random.Uint64N(7)
		}
		same(t, &e, e.spans(nil))
	}
}
