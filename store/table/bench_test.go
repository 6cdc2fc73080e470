package table_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

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

// benchmarkRead reads ten columns on one thread, with this package and with arrow-go: at least 10 M rows/s.
func benchmarkRead(b *testing.B, samples bool, source Source) {
	text, err := File(source, Schema(samples), 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	for name, read := range map[string]func() (Rate, error){
		"own":      func() (Rate, error) { return Read(text, 1) },
		"arrow-go": func() (Rate, error) { return readArrowGo(text) },
	} {
		b.Run(name, func(b *testing.B) {
			var all Rate
			b.ReportAllocs()
			for b.Loop() {
				r, err := read()
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

// readArrowGo reads the columns of an analysis with Apache's library for Go, on one thread, column by column into
// slices that are used again, and adds them up.
func readArrowGo(text []byte) (Rate, error) {
	began := time.Now()
	r, err := file.NewParquetReader(bytes.NewReader(text))
	if err != nil {
		return Rate{}, err
	}
	defer r.Close()
	const rows = 1 << 16
	ints, narrow := make([]int64, rows), make([]int32, rows)
	texts, levels := make([]parquet.ByteArray, rows), make([]int16, rows)
	sum := int64(0)
	for group := range r.NumRowGroups() {
		for _, name := range Analysis {
			chunk, err := r.RowGroup(group).Column(r.MetaData().Schema.ColumnIndexByName(name))
			if err != nil {
				return Rate{}, err
			}
			for chunk.HasNext() {
				values := 0
				switch c := chunk.(type) {
				case *file.Int64ColumnChunkReader:
					_, values, err = c.ReadBatch(rows, ints, levels, nil)
					for _, v := range ints[:values] {
						sum += v
					}
				case *file.ByteArrayColumnChunkReader:
					_, values, err = c.ReadBatch(rows, texts, levels, nil)
				case *file.Int32ColumnChunkReader:
					_, values, err = c.ReadBatch(rows, narrow, levels, nil)
				}
				if err != nil {
					return Rate{}, err
				}
				if values == 0 {
					break
				}
			}
		}
	}
	_ = sum
	return Rate{r.NumRows(), int64(len(text)), time.Since(began)}, nil
}

// BenchmarkWriteArrowGo is the yardstick: Apache's library with the same rows.
func BenchmarkWriteArrowGo(b *testing.B) {
	for _, c := range []struct {
		name    string
		samples bool
		source  Source
	}{{"ledger", false, NewLedger()}, {"samples", true, NewSamples()}} {
		b.Run(c.name, func(b *testing.B) {
			text, err := File(c.source, Schema(c.samples), 1<<18)
			if err != nil {
				b.Fatal(err)
			}
			columns, err := NewColumns(text, Schema(c.samples))
			if err != nil {
				b.Fatal(err)
			}
			var all Rate
			for b.Loop() {
				r, err := columns.WriteArrowGo()
				if err != nil {
					b.Fatal(err)
				}
				all.Rows, all.Bytes, all.Duration = all.Rows+r.Rows, all.Bytes+r.Bytes, all.Duration+r.Duration
			}
			report(b, all)
		})
	}
}

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
