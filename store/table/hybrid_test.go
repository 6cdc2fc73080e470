package table

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestHybrid reads what was written, for all widths, with runs and without, in steps of any length.
func TestHybrid(t *testing.T) {
	testenv.Once(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		width := []int{1, 2, 8, 16, 32}[seed%5]
		var h hybrid
		h.reset(width)
		var want []int32
		for range r.IntN(40) {
			v, n := uint32(r.Uint64()>>(64-width)), 1
			if width == 32 {
				v >>= 1 // codes are no larger
			}
			switch r.IntN(4) {
			case 0:
				n = 1 + r.IntN(50)
			case 1:
				n = 1 + r.IntN(2000<<(7*r.IntN(2)*r.IntN(2)))
			}
			if n > 1 || r.IntN(2) == 0 {
				h.repeat(v, n)
			} else {
				h.put(v)
			}
			for range n {
				want = append(want, int32(v))
			}
		}
		checkHybrid(t, r, &h, want)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checkHybrid reads what was written.
func checkHybrid(t *testing.T, r *rand.Rand, h *hybrid, want []int32) {
	t.Helper()
	from := newHybridReader(slices.Clone(h.finish()), h.width)
	got := make([]int32, len(want))
	for at := 0; at < len(got); {
		n := min(1+r.IntN(1<<(5+r.IntN(12))), len(got)-at)
		if !from.read(got[at : at+n]) {
			t.Errorf("no more than %d of %d values", at, len(got))
			return
		}
		at += n
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d values of %d bits are others", len(want), h.width)
	}
	if from.read(make([]int32, 8)) {
		t.Error("values behind the last ones")
	}
}

// TestHybridWidens: values of a byte become such of two while others come, at any place, and are the same.
func TestHybridWidens(t *testing.T) {
	testenv.Once(t)
	var h hybrid
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		h.reset(8)
		var want []int32
		put := func(below uint32, times int) {
			for range times {
				v, n := r.Uint32N(below), 1
				if r.IntN(3) == 0 {
					n = 1 + r.IntN(60<<(11*r.IntN(2)*r.IntN(2)))
				}
				h.repeat(v, n)
				want = append(want, slices.Repeat([]int32{int32(v)}, n)...)
			}
		}
		put([]uint32{2, 256}[seed%2], r.IntN(120))
		h.widen()
		put(1<<16, r.IntN(40))
		checkHybrid(t, r, &h, want)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestHybridWidths unpacks the widths that other programs use: the specification's example of numbers 0 to 7 in
// three bits, and others by their definition.
func TestHybridWidths(t *testing.T) {
	r := newHybridReader([]byte{3, 0x88, 0xC6, 0xFA}, 3)
	got := make([]int32, 8)
	if !r.read(got) || !slices.Equal(got, []int32{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("%v", got)
	}
	for width := 1; width <= 31; width++ {
		want := make([]int32, 24)
		bits := make([]byte, 3*width)
		for i := range want {
			want[i] = rand.Int32() & (1<<width - 1)
			for b := range width {
				at := i*width + b
				bits[at/8] |= byte(want[i]>>b&1) << (at % 8)
			}
		}
		r := newHybridReader(append([]byte{3<<1 | 1}, bits...), width)
		got := make([]int32, 24)
		if !r.read(got) || !slices.Equal(got, want) {
			t.Errorf("width %d: %v, want %v", width, got, want)
		}
	}
	r = newHybridReader([]byte{2 << 1}, 0)
	if got := []int32{1, 1}; !r.read(got) || got[0] != 0 || got[1] != 0 {
		t.Errorf("no bits: %v", got)
	}
}

// TestDelta reads what was written, of all sizes of steps, those that wrap included.
func TestDelta(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		d := delta{small: seed%2 == 0}
		d.reset()
		bits := r.IntN(65)
		last := int64(0)
		var want []int64
		for range r.IntN(700) {
			n := 1
			if r.IntN(50) == 0 {
				n = r.IntN(600)
			}
			last += int64(r.Uint64() >> bits)
			if bits == 64 {
				last = []int64{math.MinInt64, math.MaxInt64, 0, -1}[r.IntN(4)]
			}
			if d.small {
				last = int64(int32(last))
			}
			if n == 1 {
				d.put([]int64{last})
			} else {
				d.repeat(last, n)
			}
			for range n {
				want = append(want, last)
			}
		}
		from, err := newDeltaReader(d.finish(nil))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int64, len(want))
		for at := 0; at < len(got); {
			n := min(r.IntN(300), len(got)-at)
			if !from.read(got[at : at+n]) {
				t.Fatalf("seed %d: no more than %d of %d values", seed, at, len(got))
			}
			at += n
		}
		for i := range got {
			if d.small {
				got[i] = int64(int32(got[i]))
			}
		}
		if !slices.Equal(got, want) || from.read(make([]int64, 1)) {
			t.Fatalf("seed %d: %d values are others, or there are more", seed, len(want))
		}
	}
}

// FuzzCodings reads any bytes as packed numbers, texts, structures and footers: it ends, and takes no memory that
// they only claim.
func FuzzCodings(f *testing.F) {
	var h hybrid
	h.reset(8)
	h.repeat(3, 100)
	h.put(1)
	f.Add(h.finish(), 8)
	var d delta
	d.put([]int64{1, 5, 2, 1 << 40})
	f.Add(d.finish(nil), 0)
	f.Add((&fileMeta{schema: elements(Column{Name: "x", Kind: Int32List})}).footer(), 0)
	f.Add((&pageHead{kind: pageData, values: 3, encoding: encodeDict}).append(nil), 0)
	f.Fuzz(func(t *testing.T, b []byte, width int) {
		to := make([]int32, 1000)
		r := newHybridReader(b, width&31)
		for range 100 {
			if !r.read(to) {
				break
			}
		}
		if r, err := newDeltaReader(b); err == nil {
			for range 100 {
				if !r.read(make([]int64, min(100, r.left))) || r.left == 0 {
					break
				}
			}
		}
		deltaTexts(b, false, func([]byte) error { return nil })
		deltaTexts(b, true, func([]byte) error { return nil })
		plainTexts(b, func([]byte) error { return nil })
		parseFooter(b)
		parsePage(b)
	})
}

// read reads len(to) values; false where there are not so many.
func (h *hybridReader) read(to []int32) bool {
	for len(to) > 0 {
		if !h.next() {
			return false
		}
		n := min(h.left, len(to))
		if h.bits == nil {
			for i := range to[:n] {
				to[i] = int32(h.value)
			}
		} else {
			h.unpack(to[:n])
		}
		h.left -= n
		to = to[n:]
	}
	return true
}
