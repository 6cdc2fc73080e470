package gguf

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var rowTypes = []Type{F32, F16, BF16, Q8_0, Q5_0, Q4_0, Q4_K}

func randomRow(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// TestRowError: what comes back differs by no more than the type's step allows.
func TestRowError(t *testing.T) {
	// Relative root mean square error. A uniform quantiser of step s has s/√12. Of 32 normal values the largest
	// magnitude is about 2.4, so Q8_0 has 2.4/127/√12 = 0.0055, Q5_0 2.4/16/√12 = 0.043, Q4_0 twice that; Q4_K has
	// 15 steps over the range, about 4.1: 0.079. The bounds leave a tenth.
	bounds := map[Type]float64{F32: 0, F16: 0.0003, BF16: 0.002, Q8_0: 0.006, Q5_0: 0.0475, Q4_0: 0.095, Q4_K: 0.087}
	x := randomRow(1 << 16)
	for _, typ := range rowTypes {
		p, err := AppendRow(nil, typ, x)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := typ.RowBytes(int64(len(x))); int64(len(p)) != n {
			t.Fatalf("%v: %d bytes, want %d", typ, len(p), n)
		}
		y := make([]float32, len(x))
		if err := DecodeRow(y, typ, p); err != nil {
			t.Fatal(err)
		}
		var square, sum float64
		for i := range x {
			d := float64(x[i] - y[i])
			square += d * d
			sum += float64(x[i]) * float64(x[i])
		}
		if rel := math.Sqrt(square / sum); rel > bounds[typ] {
			t.Errorf("%v: relative error %.4f, at most %.4f expected", typ, rel, bounds[typ])
		} else {
			t.Logf("%v: relative error %.5f", typ, rel)
		}
	}
}

// TestRowCorners: zeros, one value, equal values, the largest and smallest magnitudes.
func TestRowCorners(t *testing.T) {
	blocks := map[string]func(i int) float32{
		"zeros":     func(int) float32 { return 0 },
		"ones":      func(int) float32 { return 1 },
		"minus":     func(int) float32 { return -1 },
		"one spike": func(i int) float32 { return map[bool]float32{true: -3, false: 0}[i == 77] },
		"tiny":      func(i int) float32 { return 1e-30 * float32(i%3) },
		"ramp":      func(i int) float32 { return float32(i%32) - 16 },
		"large":     func(i int) float32 { return 6e4 * float32(1-i%2*2) },
	}
	for name, f := range blocks {
		x := make([]float32, 256)
		var top float64
		for i := range x {
			x[i] = f(i)
			top = max(top, math.Abs(float64(x[i])))
		}
		for _, typ := range rowTypes {
			p, err := AppendRow(nil, typ, x)
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, 256)
			if err := DecodeRow(y, typ, p); err != nil {
				t.Fatal(err)
			}
			for i := range x {
				if d := math.Abs(float64(x[i] - y[i])); !(d <= top/7+1e-7) {
					t.Fatalf("%s as %v: value %d is %g, was %g", name, typ, i, y[i], x[i])
				}
			}
		}
	}
}

// TestQ8Rounding: halves away from zero, and the float just below a half down, as C's roundf does.
func TestQ8Rounding(t *testing.T) {
	var x [32]float32
	x[0] = 127 // the scale becomes 1
	x[1], x[2], x[3], x[4] = 0.5, -0.5, math.Nextafter32(0.5, 0), math.Nextafter32(-0.5, 0)
	x[5], x[6], x[7] = 1.5, math.Nextafter32(1.5, 0), math.Nextafter32(-1.5, 0)
	x[8], x[9] = 126.5, math.Nextafter32(126.5, 0)
	got := appendQ8(nil, &x)[2:]
	for i, want := range []int8{127, 1, -1, 0, 0, 2, 1, -1, 127, 126} {
		if int8(got[i]) != want {
			t.Errorf("%g became %d, want %d", x[i], int8(got[i]), want)
		}
	}
}

// TestSixBits: the 12 bytes hold any eight scales and minima.
func TestSixBits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		var s, m [8]uint8
		for i := range s {
			s[i], m[i] = uint8(r.IntN(64)), uint8(r.IntN(64))
		}
		p := packSixBits(&s, &m)
		if s2, m2 := unpackSixBits(p[:]); s2 != s || m2 != m {
			t.Fatalf("%v %v became %v %v", s, m, s2, m2)
		}
	}
}

// TestDecodeKnown decodes blocks that were laid out by hand.
func TestDecodeKnown(t *testing.T) {
	half := func(dst []byte, f float32) []byte { return binary.LittleEndian.AppendUint16(dst, f16FromFloat32(f)) }

	q4 := append(half(nil, 0.5), slices.Repeat([]byte{0xf0}, 16)...) // low nibbles 0, high 15
	wantQ4 := append(slices.Repeat([]float32{-4}, 16), slices.Repeat([]float32{3.5}, 16)...)

	q5 := append(half(nil, 2), 0x01, 0, 0, 0x80) // fifth bits of values 0 and 31
	q5 = append(q5, slices.Repeat([]byte{0x21}, 16)...)
	wantQ5 := append(slices.Repeat([]float32{-30}, 16), slices.Repeat([]float32{-28}, 16)...)
	wantQ5[0], wantQ5[31] = 2, 4

	q6 := make([]byte, 128+64) // values 0 − 32 = −32 …
	q6[0] = 0x5a               // value 0: low 10; value 64: low 5
	q6[128] = 0b10_01_00_11    // high bits of values 0: 3, 32: 0, 64: 1, 96: 2
	q6 = append(q6, 1, 1, 1, 1, 1, 1, 1, 1, 0xff, 2, 2, 2, 2, 2, 2, 2)
	q6 = half(q6, 0.25)
	wantQ6 := slices.Repeat([]float32{-8}, 256)
	for i := 128; i < 144; i++ {
		wantQ6[i] = 8
	}
	for i := 144; i < 256; i++ {
		wantQ6[i] = -16
	}
	wantQ6[0], wantQ6[64], wantQ6[96] = 0.25*(3*16+10-32), 0.25*(16+5-32), 0.25*(2*16-32)

	for _, c := range []struct {
		typ  Type
		src  []byte
		want []float32
	}{{Q4_0, q4, wantQ4}, {Q5_0, q5, wantQ5}, {Q6_K, q6, wantQ6}} {
		got := make([]float32, len(c.want))
		if err := DecodeRow(got, c.typ, c.src); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v:\ngot  %v\nwant %v", c.typ, got, c.want)
		}
	}
}

func TestRowRefuses(t *testing.T) {
	x := make([]float32, 48)
	if _, err := AppendRow(nil, Q8_0, x); err == nil {
		t.Error("encoded one and a half blocks")
	}
	if _, err := AppendRow(nil, IQ4NL, x[:32]); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("IQ4_NL: %v", err)
	}
	if err := DecodeRow(x[:32], IQ4NL, make([]byte, 18)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("IQ4_NL: %v", err)
	}
	if err := DecodeRow(x[:32], Q8_0, make([]byte, 33)); err == nil {
		t.Error("decoded half a block")
	}
}

func BenchmarkAppendRow(b *testing.B) {
	x := randomRow(1 << 14)
	for _, typ := range rowTypes {
		b.Run(typ.String(), func(b *testing.B) {
			n, _ := typ.RowBytes(int64(len(x)))
			dst := make([]byte, 0, n)
			b.SetBytes(int64(4 * len(x)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendRow(dst, typ, x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeRow(b *testing.B) {
	x := randomRow(1 << 14)
	for _, typ := range rowTypes {
		b.Run(typ.String(), func(b *testing.B) {
			p, _ := AppendRow(nil, typ, x)
			y := make([]float32, len(x))
			b.SetBytes(int64(4 * len(x)))
			b.ReportAllocs()
			for b.Loop() {
				if err := DecodeRow(y, typ, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
