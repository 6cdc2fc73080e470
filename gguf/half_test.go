package gguf

import (
	"math"
	"testing"
)

// exactHalf is the value of half-precision bits, by the definition of the format.
func exactHalf(h uint16) float64 {
	sign, exp, m := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch exp {
	case 0:
		return sign * math.Ldexp(m, -24)
	case 31:
		if m != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+m, exp-25)
}

// TestHalfAll: every half-precision number has the value of its definition and comes back.
func TestHalfAll(t *testing.T) {
	for n := range 1 << 16 {
		h := uint16(n)
		f := f16ToFloat32(h)
		if want := exactHalf(h); float64(f) != want && !(math.IsNaN(want) && f != f) {
			t.Fatalf("%#04x is %g, want %g", h, f, want)
		}
		if back := f16FromFloat32(f); back != h && f == f {
			t.Fatalf("%#04x became %#04x", h, back)
		}
	}
	if h := f16FromFloat32(float32(math.NaN())); exactHalf(h) == exactHalf(h) {
		t.Errorf("a NaN became %#04x", h)
	}
}

// TestHalfRounding: between any two neighbours the nearer is taken, and in the middle the even one.
func TestHalfRounding(t *testing.T) {
	for n := range 0x7c00 {
		a, b := uint16(n), uint16(n+1)
		low, high := exactHalf(a), exactHalf(b)
		if b == 0x7c00 {
			high = 65536
		}
		mid := float32((low + high) / 2)
		even := a + a&1
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{mid, even}, {math.Nextafter32(mid, 0), a}, {math.Nextafter32(mid, 1e9), b},
			{-mid, even | 0x8000}, {-math.Nextafter32(mid, 0), a | 0x8000},
		} {
			if got := f16FromFloat32(c.x); got != c.want {
				t.Fatalf("%g became %#04x, want %#04x", c.x, got, c.want)
			}
		}
	}
}

func TestBF16(t *testing.T) {
	for n := range 1 << 16 {
		f := bf16ToFloat32(uint16(n))
		if back := bf16FromFloat32(f); f == f && back != uint16(n) {
			t.Fatalf("%#04x became %#04x", n, back)
		} else if f != f && bf16ToFloat32(back) == bf16ToFloat32(back) {
			t.Fatalf("the NaN %#04x became the number %#04x", n, back)
		}
	}
	for x, want := range map[uint32]uint16{0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81,
		0x7f7fffff: 0x7f80} {
		if got := bf16FromFloat32(math.Float32frombits(x)); got != want {
			t.Errorf("%#x became %#04x, want %#04x", x, got, want)
		}
	}
}
