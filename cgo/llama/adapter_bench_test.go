//go:build llama

package llama

import (
	"context"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkControlVector reports the decode speed that a context keeps when a control vector is set, as a ratio of
// processor time: pieces of four tokens of one context, with a vector of zeros and without in alternation. The model is
// the embedded one, or that of LLAMATAP_BENCH_MODEL.
func BenchmarkControlVector(b *testing.B) {
	m := loadDefault(b)
	if path := os.Getenv("LLAMATAP_BENCH_MODEL"); path != "" {
		var err error
		if m, err = LoadModel(context.Background(), path, DefaultModelParams()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { m.Close() })
	}
	const piece = 4
	x := newContext(b, m, func(p *ContextParams) { p.Size = 1024 })
	zeros := make([]float32, m.Width()*m.Layers())
	now := func() float64 {
		var at unix.Timespec
		unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &at)
		return float64(at.Nano())
	}
	pos := 0
	generate := func(tokens int) {
		for range tokens {
			if err := decode(b, x, pos, Token(100+pos)); err != nil {
				b.Fatal(err)
			}
			pos++
		}
	}
	took := func(data []float32) float64 {
		if err := x.SetControlVector(data, 1, m.Layers()); err != nil {
			b.Fatal(err)
		}
		generate(1) // builds the graph
		began := now()
		generate(piece)
		return now() - began
	}
	ratios := make([]float64, 0, b.N)
	for i := 0; b.Loop(); i++ {
		if pos > 900 {
			x.Memory().Clear(false)
			pos = 0
		}
		var plain, armed float64
		if i%2 == 0 {
			plain, armed = took(nil), took(zeros)
		} else {
			armed, plain = took(zeros), took(nil)
		}
		ratios = append(ratios, plain/armed)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "kept")
	b.ReportMetric(ratios[len(ratios)/4], "kept-quartile-1")
	b.ReportMetric(ratios[len(ratios)*3/4], "kept-quartile-3")
}
