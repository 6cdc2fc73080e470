package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/llamatap/llamatap/bench/trace"
)

// Parquet is the table of how fast rows of traces are written as Parquet and read again, to and from memory: rows
// of a ledger of accesses, and of samples at addresses that nobody can foresee.
type Parquet struct {
	Time     time.Duration // about how long all of it may take
	Rounds   int
	Rows     int64 // of each file
	Table    *Table
	Progress func(string)
}

// Goals of writing and reading.
const (
	writeGoal   = 2.5e6 // rows per second, on one thread
	readGoal    = 10e6  // rows per second, ten columns, on two threads
	ledgerBytes = 1     // per row
	sampleBytes = 16
)

// parquetCase is a kind of rows, and what was measured of it.
type parquetCase struct {
	name    string
	samples bool
	source  func() trace.Source
	bytes   float64 // that a row may take
	file    []byte
	columns *trace.Columns // some of them, for the yardstick
	written []trace.Rate
	read    []trace.Rate
	library []trace.Rate
	metered []trace.Rate // of the ledger
}

// yardstickRows is how many rows arrow-go writes each time.
const yardstickRows = 1 << 18

// Run measures and fills the table.
func (p Parquet) Run(ctx context.Context) error {
	cases := []*parquetCase{
		{name: "ledger", source: func() trace.Source { return trace.NewLedger() }, bytes: ledgerBytes},
		{name: "samples", samples: true, source: func() trace.Source { return trace.NewSamples() }, bytes: sampleBytes},
	}
	for _, c := range cases {
		if err := c.prepare(p.Rows); err != nil {
			return fmt.Errorf("rows of %s: %w", c.name, err)
		}
	}
	end := time.Now().Add(p.Time)
	for round := range p.Rounds {
		if round > 0 && time.Now().After(end) {
			break
		}
		for _, c := range cases {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.round(ctx, p.Rows); err != nil {
				return fmt.Errorf("rows of %s: %w", c.name, err)
			}
		}
		p.Progress(fmt.Sprintf("table: round %d of %d", round+1, p.Rounds))
	}
	for _, c := range cases {
		for _, l := range c.lines() {
			p.Table.Add(l)
		}
	}
	return nil
}

// prepare makes what is read, and what the yardstick writes.
func (c *parquetCase) prepare(rows int64) (err error) {
	schema := trace.Schema(c.samples)
	if c.file, err = trace.File(c.source(), schema, rows); err != nil {
		return err
	}
	some, err := trace.File(c.source(), schema, min(rows, yardstickRows))
	if err == nil {
		c.columns, err = trace.NewColumns(some, schema)
	}
	return err
}

// round measures everything once. What was garbage before is collected before, not in between.
func (c *parquetCase) round(ctx context.Context, rows int64) error {
	runtime.GC()
	written, err := trace.Write(c.source(), trace.Schema(c.samples), rows)
	if err != nil {
		return err
	}
	runtime.GC()
	library, err := c.columns.WriteArrowGo()
	if err != nil {
		return err
	}
	runtime.GC()
	read, err := trace.Read(c.file, 2)
	c.written, c.library, c.read = append(c.written, written), append(c.library, library), append(c.read, read)
	if err != nil || c.samples {
		return err
	}
	runtime.GC()
	metered, err := analyse(ctx, c.file)
	c.metered = append(c.metered, metered)
	return err
}

// lines are what was measured.
func (c *parquetCase) lines() []Line {
	var written, toGoal, toLibrary, library, read, readToGoal []float64
	for i, w := range c.written {
		written, toGoal = append(written, w.PerSecond()/1e6), append(toGoal, w.PerSecond()/writeGoal)
		toLibrary = append(toLibrary, w.PerSecond()/c.library[i].PerSecond())
		library = append(library, c.library[i].PerSecond()/1e6)
		read, readToGoal = append(read, c.read[i].PerSecond()/1e6), append(readToGoal, c.read[i].PerSecond()/readGoal)
	}
	ratio := func(of []float64) *Interval {
		i := MedianInterval(of)
		return &i
	}
	const unit = "M rows/s"
	gated := func(name string, value []float64, limit string, of []float64) Line {
		i := ratio(of)
		return Line{Section: "table", Name: name, Value: median(value), Unit: unit, Limit: limit, Ratio: i, Gate: "≥ 1", Verdict: i.AtLeast(1)}
	}
	size := Line{Section: "table", Name: c.name + ": size in the file", Value: c.written[0].PerRow(), Unit: "B/row", Figure: fmt.Sprintf("arrow-go: %.2f", c.library[0].PerRow()),
		Gate: fmt.Sprintf("≤ %.0f", c.bytes), Verdict: Passed}
	if size.Value > c.bytes {
		size.Verdict = Failed
	}
	all := []Line{
		gated(c.name+": written, one thread", written, "2.5 M rows/s", toGoal),
		{Section: "table", Name: c.name + ": written by arrow-go, from columns", Value: median(library), Unit: unit, Figure: "the yardstick"},
		{Section: "table", Name: c.name + ": written / arrow-go", Value: median(slices.Clone(toLibrary)), Unit: "×", Limit: "arrow-go", Ratio: ratio(toLibrary)},
		size,
		gated(fmt.Sprintf("%s: read, %d columns, two threads", c.name, len(trace.Analysis)), read, "10 M rows/s", readToGoal),
	}
	if len(c.metered) > 0 {
		all = append(all, analysed(c.name, c.metered))
	}
	return all
}
