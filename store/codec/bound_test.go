package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func f32Bytes(values ...float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// rowsFor are rows of n values: what activations look like, and what they had better not.
func rowsFor(r *rand.Rand, n int) map[string][]byte {
	fill := func(f func(i int) float32) []byte {
		v := make([]float32, n)
		for i := range v {
			v[i] = f(i)
		}
		return f32Bytes(v...)
	}
	normal := func(int) float32 { return float32(r.NormFloat64()) }
	with := func(odd float32, every int) []byte {
		return fill(func(i int) float32 {
			if i%every == every-1 {
				return odd
			}
			return normal(i)
		})
	}
	negativeZero := float32(math.Copysign(0, -1))
	return map[string][]byte{
		"normal":        fill(normal),
		"outliers":      with(300, 997),
		"zeros":         fill(func(int) float32 { return 0 }),
		"negative zero": fill(func(int) float32 { return negativeZero }),
		"some −0":       with(negativeZero, 61),
		"many −0":       with(negativeZero, 3),
		"constant":      fill(func(int) float32 { return -1.5 }),
		"NaN":           with(float32(math.NaN()), 83),
		"all NaN":       fill(func(int) float32 { return float32(math.NaN()) }),
		"infinite":      with(float32(math.Inf(-1)), 77),
		"sparse":        with(0, 2),
		"nearly zeros":  fill(func(i int) float32 { return float32(i%200/199) * 3 }),
		"denormals":     fill(func(i int) float32 { return math.Float32frombits(uint32(r.IntN(1 << 20))) }),
		"tiny":          fill(func(i int) float32 { return normal(i) * 1e-37 }),
		"huge":          fill(func(i int) float32 { return normal(i) * 5e37 }),
		"largest":       with(math.MaxFloat32, 50),
		"wide":          fill(func(i int) float32 { return float32(math.Exp(r.NormFloat64() * 20)) }),
		"uniform":       fill(func(int) float32 { return r.Float32()*2 - 1 }),
		"bits":          fill(func(int) float32 { return math.Float32frombits(r.Uint32()) }),
	}
}

// errorOf measures what was made of a row, in exact arithmetic.
func errorOf(t *testing.T, what string, row, got []byte) (a Achieved) {
	t.Helper()
	var worst, most, squares, sum float64
	for i := 0; i < len(row); i += 4 {
		x, y := binary.LittleEndian.Uint32(row[i:]), binary.LittleEndian.Uint32(got[i:])
		if exceptional(x) {
			if x != y {
				t.Fatalf("%s: value %d was %08x and is %08x", what, i/4, x, y)
			}
			continue
		}
		v, w := float64(math.Float32frombits(x)), float64(math.Float32frombits(y))
		worst, most = max(worst, math.Abs(v-w)), max(most, math.Abs(v))
		squares, sum = squares+(v-w)*(v-w), sum+v*v
	}
	if most > 0 {
		a = Achieved{float32(worst / most), float32(math.Sqrt(squares / sum))}
	}
	return a
}

// Every row comes back within its bound, what is not finite and −0 exactly, and the payload states the error that
// was made.
func TestBoundIsKept(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var d Decoder
	for _, id := range []ID{Q, QFSE} {
		for _, bound := range []Bound{{}, {1e-2, maxAbs}, {1e-5, maxAbs}, {1e-3, NRMSE}, {0.1, NRMSE}, {1e-5, NRMSE}} {
			e, err := NewEncoder(id)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.SetBound(bound); err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{1, 7, 64, 255, 256, 257, 2048, 5000} {
				var all []byte
				for name, row := range rowsFor(r, n) {
					what := fmt.Sprintf("%v %v, %s of %d", id, bound, name, n)
					packed, made, err := e.AppendRows([]byte("head"), row, n)
					if err != nil || len(packed) > 4+id.Bound(len(row)) {
						t.Fatalf("%s: %d bytes, %v", what, len(packed), err)
					}
					got, err := d.Append(nil, packed[4:], id, len(row))
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					is := errorOf(t, what, row, got)
					limit, reached := bound.value(), is.MaxAbs
					if bound.Metric == NRMSE {
						reached = is.NRMSE
					}
					const rounding = 1 + 1e-4 // of the sums of squares, which are made of float32
					if reached > limit*rounding || is.MaxAbs > made.MaxAbs || is.NRMSE > made.NRMSE*rounding {
						t.Errorf("%s: error %+v, reported %+v", what, is, made)
					}
					kept, stored, err := readAchieved(packed[4:])
					if err != nil || stored != made || kept.value() != bound.value() || kept.Metric != bound.Metric {
						t.Errorf("%s: the payload has %+v, %+v, %v", what, kept, stored, err)
					}
					all = append(all, row...)
				}
				packed, _, err := e.AppendRows(nil, all, n)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := d.Append(nil, packed, id, len(all)); err != nil || len(got) != len(all) {
					t.Errorf("%v %v, all rows of %d: %v", id, bound, n, err)
				}
			}
		}
	}
}

// What a normal row costs is what the bound says: 10 bits of a largest error of 1e-3, and less with the entropy
// stage. The entropy of normal values quantised to an NRMSE of 1e-3 is 10.2 bits, a ratio of 3.13.
func TestBoundRatio(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n, rows = 2048, 16
	v := make([]float32, n*rows)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	src := f32Bytes(v...)
	for _, c := range []struct {
		id    ID
		bound Bound
		least float64
	}{{Q, Bound{1e-3, maxAbs}, 3.15}, {QFSE, Bound{1e-3, maxAbs}, 3.4}, {QFSE, Bound{1e-3, NRMSE}, 3.1},
		{Q, Bound{1e-2, maxAbs}, 4.5}} {
		e, _ := NewEncoder(c.id)
		if err := e.SetBound(c.bound); err != nil {
			t.Fatal(err)
		}
		packed, _, err := e.AppendRows(nil, src, n)
		if ratio := float64(len(src)) / float64(len(packed)); err != nil || ratio < c.least {
			t.Errorf("%v %+v: ratio %.3f, at least %.2f is possible; %v", c.id, c.bound, ratio, c.least, err)
		}
	}
}

// The entropy stage is left out where it costs more than it saves: on few values.
func TestBoundFew(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	var sizes [2]int
	for n := 1; n < 300; n += 7 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		src := f32Bytes(v...)
		for i, id := range []ID{Q, QFSE} {
			e, _ := NewEncoder(id)
			packed, made, err := e.AppendRows([]byte("ab"), src, n)
			if err != nil || string(packed[:2]) != "ab" {
				t.Fatalf("%q, %v", packed[:2], err)
			}
			var d Decoder
			got, err := d.Append(nil, packed[2:], id, len(src))
			if err != nil {
				t.Fatal(err)
			}
			if is := errorOf(t, id.String(), src, got); is.MaxAbs > made.MaxAbs || made.MaxAbs > 1e-3 {
				t.Errorf("%v, %d values: error %+v, reported %+v", id, n, is, made)
			}
			sizes[i] = len(packed)
		}
		if sizes[1] > sizes[0] {
			t.Errorf("%d values: %d bytes with the entropy stage, %d without", n, sizes[1], sizes[0])
		}
	}
}

func TestBoundErrors(t *testing.T) {
	e, _ := NewEncoder(Q)
	for _, b := range []Bound{{Error: -1}, {Error: 1}, {Error: 1e-9}, {Error: float32(math.NaN())}, {Metric: 9}} {
		if e.SetBound(b) == nil {
			t.Errorf("%+v was accepted", b)
		}
	}
	if _, _, err := e.AppendRows(nil, make([]byte, 12), 2); !errors.Is(err, ErrLength) {
		t.Errorf("a row and a half: %v", err)
	}
	if _, err := e.Append(nil, make([]byte, 12)); err == nil {
		t.Error("bytes without rows were packed")
	}
}

func FuzzBound(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, row := range rowsFor(r, 70) {
		f.Add(row, uint16(35), true, float32(1e-3))
		f.Add(row, uint16(0), false, float32(1e-2))
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, src []byte, n uint16, nrmse bool, limit float32) {
		length := int(n) + 1
		src = src[:len(src)/(4*length)*4*length]
		bound := Bound{Error: limit}
		if nrmse {
			bound.Metric = NRMSE
		}
		for _, id := range []ID{Q, QFSE} {
			e, _ := NewEncoder(id)
			if e.SetBound(bound) != nil {
				return
			}
			packed, made, err := e.AppendRows(nil, src, length)
			if err != nil || len(packed) > id.Bound(len(src)) {
				t.Fatalf("%v: %d bytes of %d, %v", id, len(packed), len(src), err)
			}
			got, err := d.Append(nil, packed, id, len(src))
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(src); at += 4 * length {
				is := errorOf(t, id.String(), src[at:at+4*length], got[at:at+4*length])
				if is.MaxAbs > made.MaxAbs || !nrmse && is.MaxAbs > bound.value() {
					t.Fatalf("%v: error %+v, reported %+v, bound %v", id, is, made, bound)
				}
			}
		}
	})
}

// Bytes that no encoder wrote are refused, or decode to as many bytes as asked for.
func FuzzUnquantize(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, id := range []ID{Q, QFSE} {
		e, _ := NewEncoder(id)
		for _, row := range rowsFor(r, 300) {
			packed, _, _ := e.AppendRows(nil, row, 150)
			f.Add(packed, 1200)
		}
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, src []byte, size int) {
		size = min(max(size, 0), 1<<20)
		for _, id := range []ID{Q, QFSE} {
			got, err := d.Append(nil, src, id, size)
			if err == nil && len(got) != size {
				t.Fatalf("%d bytes, not %d", len(got), size)
			}
		}
	})
}

func BenchmarkQuantize(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	const n, rows = 2048, 64
	v := make([]float32, n*rows)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	src := f32Bytes(v...)
	for _, id := range []ID{Q, QFSE} {
		e, _ := NewEncoder(id)
		packed, _, _ := e.AppendRows(nil, src, n)
		b.Run(id.String(), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				packed, _, _ = e.AppendRows(packed[:0], src, n)
			}
			b.ReportMetric(float64(len(src))/float64(len(packed)), "ratio")
		})
		b.Run(id.String()+"/decode", func(b *testing.B) {
			var d Decoder
			var out []byte
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				out, _ = d.Append(out[:0], packed, id, len(src))
			}
		})
	}
}

// The vector code does what the plain code does, to the last bit.
func TestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 7, 8, 9, 255, 256} {
		for name, row := range rowsFor(r, n) {
			var plain, vector lookSums
			lookPlain(row, &plain)
			lookPlain(row[lookVector(row, &vector):], &vector)
			// infinite sums may be NaN
			if plain != vector && name != "huge" && name != "bits" && name != "wide" && name != "largest" {
				t.Errorf("%s of %d: %+v, plain %+v", name, n, vector, plain)
			}
			if name == "NaN" || name == "all NaN" || name == "infinite" || name == "bits" {
				continue // exceptions are taken out before
			}
			for _, step := range []float32{1e-3, 0.7, 1e30} {
				var p, v quantSums
				want, got := make([]int32, n), make([]int32, n)
				quantizePlain(want, row, 1/step, step, &p)
				done := quantizeVector(got, row, 1/step, step, &v)
				quantizePlain(got[done:], row[4*done:], 1/step, step, &v)
				if fmt.Sprint(p, want) != fmt.Sprint(v, got) {
					t.Errorf("%s of %d, step %v: %+v %v, plain %+v %v", name, n, step, v, got, p, want)
				}
			}
		}
	}
}
