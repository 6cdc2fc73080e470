package vector_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/cgo/vector"
)

// kernels are those that this processor runs.
func kernels(t testing.TB) []vector.Kernel {
	widest, err := vector.New()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Log("built without llama.cpp")
		return nil
	}
	var all []vector.Kernel
	for bits := vector.Kernel(128); bits <= widest; bits *= 2 {
		all = append(all, bits)
	}
	return all
}

func random(n int) []float32 {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(r.NormFloat64())
	}
	return s
}

// product is the definition, in double precision.
func product(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// TestKernel compares each operation with its definition, for shapes that fill tiles and vectors and that do not.
func TestKernel(t *testing.T) {
	for _, k := range kernels(t) {
		for _, c := range []struct{ rows, features, width int }{{1, 1, 1}, {5, 5, 16}, {61, 63, 33}, {124, 7, 300}} {
			t.Run(fmt.Sprint(k.Name(), c), func(t *testing.T) {
				near := func(what string, got float32, want float64) {
					if math.Abs(float64(got)-want) > 1e-4 {
						t.Errorf("%s is %v, want %v", what, got, want)
					}
				}
				x, w := random(c.rows*c.width), random(c.features*c.width + 1)[1:] // at any address
				row := func(r int) []float32 { return x[r*c.width:][:c.width] }
				feature := func(f int) []float32 { return w[f*c.width:][:c.width] }
				out := make([]float32, c.rows*c.features)
				k.Products(out, x, w, c.rows, c.features, c.width)
				for i, got := range out {
					near(fmt.Sprint("product ", i), got, product(row(i/c.features), feature(i%c.features)))
				}
				index := []int32{int32(c.features - 1), 0, int32(c.features / 2), 0}
				dots := make([]float32, len(index))
				k.Dots(dots, index, w, row(0))
				for i, got := range dots {
					near(fmt.Sprint("dot ", i), got, product(row(0), feature(int(index[i]))))
				}
				sum, scales := append([]float32{}, row(0)...), []float32{1, -2, 0.5, 3}
				k.AddRows(sum, scales, index, w)
				for i, got := range sum {
					want := float64(row(0)[i])
					for j, f := range index {
						want += float64(scales[j]) * float64(feature(int(f))[i])
					}
					near(fmt.Sprint("sum ", i), got, want)
				}
				before, gradients := append([]float32{}, sum...), row(0)
				m, v := make([]float32, c.width), random(c.width)
				for i := range v {
					v[i] *= v[i]
				}
				old := append([]float32{}, v...)
				k.Adam(sum, gradients, m, v, 0.5, 2)
				for i, g := range gradients {
					m2 := 0.999*float64(old[i]) + 0.001*float64(g*g)
					near(fmt.Sprint("moment ", i), v[i], m2)
					near(fmt.Sprint("Adam ", i), sum[i], float64(before[i])-0.5*0.1*float64(g)/math.Sqrt(2*m2))
				}
			})
		}
	}
}

func TestShort(t *testing.T) {
	for _, k := range kernels(t) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("an array that is too short is read")
				}
			}()
			k.Products(make([]float32, 3), make([]float32, 4), make([]float32, 4), 2, 2, 2)
		}()
	}
}

func BenchmarkProducts(b *testing.B) {
	const rows, features, width = 64, 4096, 768
	x, w, out := random(rows*width), random(features*width), make([]float32, rows*features)
	for _, k := range kernels(b) {
		b.Run(k.Name(), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				out := make([]float32, len(out))
				for pb.Next() {
					k.Products(out, x, w, rows, features, width)
				}
			})
			b.ReportMetric(2*rows*features*width*float64(b.N)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
		})
	}
}

func BenchmarkRows(b *testing.B) {
	const features, width, chosen = 4096, 768, 64
	w, row := random(features*width), random(width)
	index, scales := make([]int32, chosen), random(chosen)
	for i := range index {
		index[i] = int32(i * 61)
	}
	for _, k := range kernels(b) {
		b.Run(k.Name(), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				out, dots := make([]float32, width), make([]float32, chosen)
				for pb.Next() {
					k.AddRows(out, scales, index, w)
					k.Dots(dots, index, w, row)
				}
			})
			b.ReportMetric(4*chosen*width*float64(b.N)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
		})
	}
}
