package table_test

import (
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// report adds rows per second and bytes per row to the figures of go test.
func report(b *testing.B, r Rate) {
	b.Helper()
	b.ReportMetric(r.PerSecond()/1e6, "Mrows/s")
	b.ReportMetric(r.PerRow(), "B/row")
}

func benchmarkWrite(b *testing.B, samples bool, source func() Source) {
	var all Rate
	b.ReportAllocs()
	for b.Loop() {
		r, err := Write(source(), Schema(samples), 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		all.Rows, all.Bytes, all.Duration = all.Rows+r.Rows, all.Bytes+r.Bytes, all.Duration+r.Duration
	}
	report(b, all)
}

// BenchmarkWriteLedger writes a row group of a ledger's rows on one thread: 2.5 M rows/s, at most a byte per row.
func BenchmarkWriteLedger(b *testing.B) {
	benchmarkWrite(b, false, func() Source { return NewLedger() })
}

// BenchmarkWriteSamples writes a row group of samples on one thread: 2.5 M rows/s, at most 16 bytes per row.
func BenchmarkWriteSamples(b *testing.B) {
	benchmarkWrite(b, true, func() Source { return NewSamples() })
}

// readers read a table on one thread, by name.
var readers = map[string]func(text []byte) (Rate, error){
	"own": func(text []byte) (Rate, error) { return Read(text, 1) },
}

// benchmarkRead reads ten columns on one thread: at least 10 M rows/s.
func benchmarkRead(b *testing.B, samples bool, source Source) {
	text, err := File(source, Schema(samples), 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	for name, read := range readers {
		b.Run(name, func(b *testing.B) {
			var all Rate
			b.ReportAllocs()
			for b.Loop() {
				r, err := read(text)
				if err != nil {
					b.Fatal(err)
				}
				all.Rows, all.Bytes, all.Duration = all.Rows+r.Rows, all.Bytes+r.Bytes, all.Duration+r.Duration
			}
			report(b, all)
		})
	}
}

func BenchmarkReadLedger(b *testing.B) { benchmarkRead(b, false, NewLedger()) }

func BenchmarkReadSamples(b *testing.B) { benchmarkRead(b, true, NewSamples()) }

// TestSizes: rows of a ledger take at most a byte, samples at most sixteen. This is the same on every machine.
func TestSizes(t *testing.T) {
	testenv.Once(t)
	for _, c := range []struct {
		source  Source
		samples bool
		most    float64
	}{{NewLedger(), false, 1}, {NewSamples(), true, 16}} {
		r, err := Write(c.source, Schema(c.samples), 1<<18)
		if err != nil {
			t.Fatal(err)
		}
		if r.PerRow() > c.most {
			t.Errorf("%.2f bytes per row, %.0f are allowed", r.PerRow(), c.most)
		}
	}
}
