package analyze

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// scanned gathers the rows of a run's trace in a reading of its own.
func scanned(t testing.TB, s *survey) *binner {
	t.Helper()
	file, err := table.Open(s.Dir, rundir.TraceName)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var names []string
	for _, c := range figureColumns {
		names = append(names, memtrace.TraceColumns()[c].Name)
	}
	scan, err := file.Scan(names, table.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer scan.Close()
	b := newBinner(s)
	columns := make([]*table.Vector, len(memtrace.TraceColumns()))
	for {
		rows, err := scan.Next()
		if errors.Is(err, io.EOF) {
			b.finish()
			return b
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range figureColumns {
			columns[c] = rows.Columns[i]
		}
		if err := b.rows(&memory.Rows{N: rows.N, Columns: columns}); err != nil {
			t.Fatal(err)
		}
	}
}

// read reads a run directory.
func read(t testing.TB, dir string) *survey {
	t.Helper()
	s, err := readSurvey(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// measured is a run with its metrics.
func measured(t testing.TB, dir string) (s *survey, metrics string) {
	t.Helper()
	s = read(t, dir)
	var text strings.Builder
	write, err := s.measure(context.Background(), memory.Options{})
	if err == nil {
		err = write(&text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, text.String()
}

// TestOnePass: one reading gives the figures and the metrics that two give, each by itself.
func TestOnePass(t *testing.T) {
	sampled := small()
	for i := range int64(31) {
		sampled.Trace = append(sampled.Trace,
			memrun.Access{NS: start + i*second, Phase: "generation", Op: "read", Type: "weight", Collector: "perf",
				Addr: 1<<20 + i, Size: 8})
	}
	sampled.Regions[0].Start = 1 << 20
	for name, run := range map[string]*memrun.Run{"parts": traced(3), "long": long(70_000), "samples": sampled} {
		dir := run.Write(t, t.TempDir())
		s, metrics := measured(t, dir)
		apart := read(t, dir)
		scanned(t, apart)
		if !reflect.DeepEqual(s.Heat, apart.Heat) || !reflect.DeepEqual(s.Working, apart.Working) ||
			!reflect.DeepEqual(s.Phases, apart.Phases) || s.From != apart.From || s.Heat == nil {
			t.Errorf("%s: figures of one reading are %+v, of another %+v", name, s.Phases, apart.Phases)
		}
		r, err := memory.Analyze(context.Background(), dir, memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := r.WriteMetrics(&want); err != nil || s.From == "trace" && metrics != want.String() {
			t.Errorf("%s: %v, metrics of one reading are\n%s\nof another\n%s", name, err, metrics, want.String())
		}
	}
}

// TestLateLedger: samples that stand before all rows of the ledger, such as faults while a model is loaded, are not
// drawn for it.
func TestLateLedger(t *testing.T) {
	faults := traced(1)
	faults.Trace = nil
	for i := range int64(70_000) {
		faults.Trace = append(faults.Trace, memrun.Access{NS: start + i, Phase: "weight_load", Op: "read",
			Type: "weight", Collector: "fault", Size: 4096, Buffer: 1})
	}
	dir := traced(1).Write(t, t.TempDir())
	want, _ := measured(t, dir)
	s := read(t, dir)
	b := newBinner(s)
	for _, part := range []string{faults.Write(t, t.TempDir()), dir} {
		if err := pass(part, b.rows); err != nil {
			t.Fatal(err)
		}
	}
	if b.finish(); !reflect.DeepEqual(s.Phases, want.Phases) || s.From != "trace" {
		t.Errorf("behind samples the ledger's phases are %+v, want %+v", s.Phases, want.Phases)
	}
}

// TestNoPhase: accesses of which nothing says the phase have a heading that says so, behind the others.
func TestNoPhase(t *testing.T) {
	run := traced(1)
	for i := range run.Trace {
		if i%2 == 1 {
			run.Trace[i].Phase = ""
		}
	}
	s, _ := measured(t, run.Write(t, t.TempDir()))
	var headings []string
	for _, of := range s.Phases {
		if n := len(headings); n == 0 || headings[n-1] != of.Phase {
			headings = append(headings, of.Phase)
		}
	}
	if n := len(headings); n < 2 || headings[n-1] != "no phase" || headings[0] == "" {
		t.Errorf("%q", headings)
	}
}

// pass reads a trace for its rows alone.
func pass(dir string, rows func(*memory.Rows) error) error {
	_, err := memory.Analyze(context.Background(), dir, memory.Options{Rows: rows})
	return err
}

// TestNoColumn: a trace that lacks what figures need says which column, in one line.
func TestNoColumn(t *testing.T) {
	dir := traced(1).Write(t, t.TempDir())
	b := newBinner(read(t, dir))
	err := pass(dir, func(r *memory.Rows) error {
		some := &memory.Rows{N: r.N, Columns: append([]*table.Vector{}, r.Columns...)}
		some.Columns[memtrace.TracePhase] = nil
		return b.rows(some)
	})
	if err == nil || !strings.Contains(err.Error(), "no column phase") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
