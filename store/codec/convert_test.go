package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// interesting returns bit patterns on every edge of both conversions: all exponents, both signs, mantissas around the
// rounding points, and the neighbours of every bound.
func interesting() []uint32 {
	mantissas := []uint32{0, 1, 2, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000,
		0x8001, 0xffff,
		0x10000, 0x17fff, 0x18000, 0x18001, 0x3fffff, 0x400000, 0x400001, 0x7fe000, 0x7fefff, 0x7ff000, 0x7ff001,
		0x7f7fff, 0x7f8000, 0x7fffff}
	var all []uint32
	for exponent := range uint32(256) {
		for _, mantissa := range mantissas {
			all = append(all, exponent<<23|mantissa, 1<<31|exponent<<23|mantissa)
		}
		for bit := range 23 {
			all = append(all, exponent<<23|1<<bit, 1<<31|exponent<<23|(1<<23-1)&^(1<<bit))
		}
	}
	for _, bound := range []uint32{f16Inf, f16Normal, f16Zero, bf16Inf, bf16Zero, infBits} {
		all = append(all, bound-1, bound, bound+1, 1<<31|(bound-1), 1<<31|bound, 1<<31|(bound+1))
	}
	return all
}

// roundTo is the definition of both conversions: the nearest value of a binary format with that many mantissa bits
// and that least exponent, ties to even, in exact arithmetic.
func roundTo(bits uint32, mantissaBits, minExp, maxExp int) (out uint16, l Losses) {
	sign := uint16(bits >> 16 & 0x8000)
	f := float64(math.Float32frombits(bits))
	inf := uint16((1<<(15-mantissaBits) - 1) << mantissaBits)
	switch {
	case f != f && mantissaBits == 10:
		return sign | inf | 1<<9, l
	case f != f:
		return uint16(bits>>16) | 1<<6, l
	case math.IsInf(f, 0):
		return sign | inf, l
	case f == 0:
		return sign, l
	}
	_, e := math.Frexp(f) // |f| in [2^(e-1), 2^e)
	exp := max(e-1, minExp)
	units := new(big.Float).SetFloat64(math.Abs(math.Ldexp(f, mantissaBits-exp))) // exact: a float64 has bits to spare
	whole, _ := units.Int(nil)
	rest := new(big.Float).Sub(units, new(big.Float).SetInt(whole))
	n := whole.Uint64()
	if half := rest.Cmp(big.NewFloat(0.5)); half > 0 || half == 0 && n&1 == 1 {
		n++
	}
	if n == 2<<mantissaBits {
		n, exp = n/2, exp+1
	}
	switch {
	case n == 0:
		l.Underflow = 1
		return sign, l
	case exp > maxExp:
		l.Saturated = 1
		return sign | inf, l
	case n < 1<<mantissaBits: // subnormal
		return sign | uint16(n), l
	}
	return sign | uint16((exp-minExp+1)<<mantissaBits|int(n&(1<<mantissaBits-1))), l
}

func f16Slow(bits uint32) (uint16, Losses)  { return roundTo(bits, 10, -14, 15) }
func bf16Slow(bits uint32) (uint16, Losses) { return roundTo(bits, 7, -126, 127) }

func floats(bits []uint32) []byte {
	var b []byte
	for _, v := range bits {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// checkConvert compares the fast conversion and its plain twin with the definition.
func checkConvert(t *testing.T, bits []uint32) {
	t.Helper()
	src := floats(bits)
	for _, to := range []struct {
		dtype DType
		plain func(dst, src []byte) Losses
		slow  func(uint32) (uint16, Losses)
	}{{F16, f16Plain, f16Slow}, {BF16, bf16Plain, bf16Slow}} {
		var want []byte
		var wantLosses Losses
		for _, v := range bits {
			half, l := to.slow(v)
			want = binary.LittleEndian.AppendUint16(want, half)
			wantLosses.Saturated += l.Saturated
			wantLosses.Underflow += l.Underflow
		}
		got, losses, err := Convert([]byte{7}, src, F32, to.dtype)
		if err != nil {
			t.Fatal(err)
		}
		plain := make([]byte, len(src)/2)
		plainLosses := to.plain(plain, src)
		for i := range bits {
			w, g, p := want[2*i:2*i+2], got[1+2*i:3+2*i], plain[2*i:2*i+2]
			if !bytes.Equal(w, g) || !bytes.Equal(w, p) {
				t.Fatalf("%08x (%g) to %v: want %x, fast %x, plain %x", bits[i], math.Float32frombits(bits[i]),
					to.dtype, w, g, p)
			}
		}
		if got[0] != 7 || losses != wantLosses || plainLosses != wantLosses {
			t.Fatalf("losses to %v: want %+v, fast %+v, plain %+v", to.dtype, wantLosses, losses, plainLosses)
		}
	}
}

func TestConvertEdges(t *testing.T) {
	all := interesting()
	checkConvert(t, all)
	for n := range 70 { // every length around the groups of the fast loops, at odd addresses too
		checkConvert(t, all[n*50:n*50+n])
	}
	for _, v := range all { // one by one, so that a miscounted loss cannot hide in a sum
		checkConvert(t, []uint32{v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v})
	}
}

func TestConvertRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	bits := make([]uint32, 40000)
	for i := range bits {
		bits[i] = r.Uint32()
	}
	checkConvert(t, bits)
}

func FuzzConvert(f *testing.F) {
	f.Add(floats(interesting()[:64]))
	f.Fuzz(func(t *testing.T, src []byte) {
		bits := make([]uint32, len(src)/4)
		for i := range bits {
			bits[i] = binary.LittleEndian.Uint32(src[4*i:])
		}
		checkConvert(t, bits)
	})
}

func TestConvertKnown(t *testing.T) {
	for _, c := range []struct {
		value float32
		to    DType
		want  uint16
		loss  Losses
	}{
		{1, F16, 0x3c00, Losses{}},
		{-2, F16, 0xc000, Losses{}},
		{float32(1) / 3, F16, 0x3555, Losses{}},
		{65504, F16, 0x7bff, Losses{}},
		{65519.996, F16, 0x7bff, Losses{}},
		{65520, F16, 0x7c00, Losses{Saturated: 1}},
		{-1e10, F16, 0xfc00, Losses{Saturated: 1}},
		{float32(math.Inf(1)), F16, 0x7c00, Losses{}},
		{1e-10, F16, 0, Losses{Underflow: 1}},
		{float32(math.Copysign(0, -1)), F16, 0x8000, Losses{}},
		{5.9604645e-8, F16, 1, Losses{}},
		{float32(math.NaN()), F16, 0x7e00, Losses{}},
		{1, BF16, 0x3f80, Losses{}},
		{math.MaxFloat32, BF16, 0x7f80, Losses{Saturated: 1}},
		{math.SmallestNonzeroFloat32, BF16, 0, Losses{Underflow: 1}},
	} {
		got, loss, err := Convert(nil, floats([]uint32{math.Float32bits(c.value)}), F32, c.to)
		if err != nil || binary.LittleEndian.Uint16(got) != c.want || loss != c.loss {
			t.Errorf("%g to %v: %x %+v %v, want %04x %+v", c.value, c.to, got, loss, err, c.want, c.loss)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	if _, _, err := Convert(nil, make([]byte, 6), F32, F16); !errors.Is(err, ErrLength) {
		t.Errorf("6 bytes of f32: %v", err)
	}
	if _, _, err := Convert(nil, make([]byte, 4), I32, F16); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("i32 to f16: %v", err)
	}
	got, _, err := Convert([]byte{1}, []byte{2, 3, 4}, Raw, Raw)
	if err != nil || !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("raw copy: %v %v", got, err)
	}
}

// Every half must come back from float32 unchanged, and so must every bfloat16.
func TestFloat32RoundTrip(t *testing.T) {
	for v := range 1 << 16 {
		src := binary.LittleEndian.AppendUint16(nil, uint16(v))
		for _, dtype := range []DType{F16, BF16} {
			wide, err := AppendFloat32(nil, src, dtype)
			if err != nil {
				t.Fatal(err)
			}
			if wide[0] != wide[0] {
				continue // a NaN: the payload may change
			}
			back, loss, err := Convert(nil, floats([]uint32{math.Float32bits(wide[0])}), F32, dtype)
			if err != nil || !bytes.Equal(back, src) || loss != (Losses{}) {
				t.Fatalf("%v %04x is %g and comes back as %x, %+v, %v", dtype, v, wide[0], back, loss, err)
			}
		}
	}
}

// Halves are widened to the same bits one by one and by vector instructions, in runs of any length.
func TestFloat32OfHalves(t *testing.T) {
	var src []byte
	for v := range 1 << 16 {
		src = binary.LittleEndian.AppendUint16(src, uint16(v))
	}
	for _, n := range []int{0, 1, 7, 8, 9, 1<<16 - 3, 1 << 16} {
		got, err := AppendFloat32(make([]float32, 3, 5), src[:2*n], F16)
		if err != nil || len(got) != n+3 {
			t.Fatalf("%d halves: %d floats, %v", n, len(got), err)
		}
		for v, x := range got[3:] {
			if want := f16ToFloat32(uint16(v)); math.Float32bits(x) != math.Float32bits(want) {
				t.Fatalf("%d halves: %04x is %08x, want %08x", n, v, math.Float32bits(x), math.Float32bits(want))
			}
		}
	}
}

func TestFloat32OtherTypes(t *testing.T) {
	for _, c := range []struct {
		from DType
		src  []byte
		want float32
	}{
		{F32, floats([]uint32{math.Float32bits(0.1)}), 0.1},
		{F64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(-2.5)), -2.5},
		{I8, []byte{0xff}, -1},
		{I16, []byte{0xfe, 0xff}, -2},
		{I32, []byte{0, 0, 0, 0x80}, -1 << 31},
		{I64, []byte{3, 0, 0, 0, 0, 0, 0, 0}, 3},
	} {
		got, err := AppendFloat32(nil, c.src, c.from)
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%v %x: %v %v, want %g", c.from, c.src, got, err, c.want)
		}
	}
	for _, from := range []DType{Raw, DType(len(dtypes)), 255} {
		if _, err := AppendFloat32(nil, make([]byte, 8), from); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v: %v", from, err)
		}
	}
	if _, err := AppendFloat32(nil, make([]byte, 3), F16); !errors.Is(err, ErrLength) {
		t.Errorf("3 bytes of f16: %v", err)
	}
}

func TestConvertAllocs(t *testing.T) {
	src := floats(interesting())
	dst := make([]byte, 0, len(src))
	for _, to := range []DType{F16, BF16, F32} {
		if n := testing.AllocsPerRun(20, func() { dst, _, _ = Convert(dst[:0], src, F32, to) }); n != 0 {
			t.Errorf("%v allocations per conversion to %v", n, to)
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	src := activations(1 << 20)
	dst := make([]byte, len(src)/2)
	for _, bench := range []struct {
		name string
		run  func(dst, src []byte) Losses
	}{{"f16", convertF16}, {"f16-plain", f16Plain}, {"bf16", convertBF16}, {"bf16-plain", bf16Plain}} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				bench.run(dst, src)
			}
		})
	}
}

func BenchmarkAppendFloat32(b *testing.B) {
	src := activations(1 << 20)
	for _, from := range []DType{F16, F32} {
		b.Run(from.String(), func(b *testing.B) {
			var dst []float32
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = AppendFloat32(dst[:0], src, from)
			}
		})
	}
}
