package memory

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// TestErrors: what cannot be analysed says why in one line, and what to do.
func TestErrors(t *testing.T) {
	whole := parquet(t, traceSchema(table.Version), decode(), 100)
	without := func(name string) []byte {
		s := traceSchema(table.Version)
		for i := range s.Columns {
			if s.Columns[i].Name == name {
				s.Columns[i].Name = "else"
			}
		}
		return parquet(t, s, decode()[:5], 100)
	}
	foreign := traceSchema("")
	foreign.Metadata = nil
	wrongKind := traceSchema(table.Version)
	wrongKind.Columns[memtrace.TraceSize].Kind = table.Text
	for name, c := range map[string]struct {
		content []byte
		want    []string
	}{
		"cut off":      {whole[:len(whole)/2], []string{"cut off"}},
		"text":         {[]byte("ts_ns,op,size\n1,read,3\n"), []string{"not a Parquet file"}},
		"empty":        {nil, []string{"0 bytes"}},
		"newer":        {parquet(t, traceSchema("3.0"), decode()[:5], 100), []string{`version: "3.0"`, table.Version}},
		"not a trace":  {parquet(t, foreign, decode()[:5], 100), []string{table.VersionKey}},
		"no size":      {without("size"), []string{"no column size"}},
		"no collector": {without("collector"), []string{"no column collector"}},
		"size as text": {parquet(t, wrongKind, []row{{memtrace.TraceTime: 1, memtrace.TraceSize: "x"}}, 10),
			[]string{"size", "text"}},
		"an unknown op": {parquet(t, traceSchema(table.Version),
			[]row{access(0, read, weight, 1, 1, 0, 1).with(memtrace.TraceOp, "peek")}, 10),
			[]string{`unknown op "peek"`}},
		"an unknown type": {parquet(t, traceSchema(table.Version),
			[]row{access(0, read, weight, 1, 1, 0, 1).with(memtrace.TraceRegionType, "hdd")}, 10),
			[]string{`unknown region type "hdd"`}},
	} {
		dir := t.TempDir()
		writeFile(t, dir, rundir.TraceName, c.content)
		err := refused(t, dir)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
				!strings.Contains(err.Error(), dir) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	if err := refused(t, t.TempDir()); err == nil || !strings.Contains(err.Error(), "--tap-ledger") {
		t.Error(err)
	}
	for _, path := range []string{"/no/such/run", os.Args[0]} {
		if _, err := Analyze(context.Background(), path, Options{}); err == nil ||
			!strings.Contains(err.Error(), "give ") {
			t.Error(err)
		}
	}
}

// TestSideTables: damaged tables beside the trace are errors that name them; without them a run can be analysed.
func TestSideTables(t *testing.T) {
	for _, name := range []string{rundir.RegionsName, "kv_block_lifecycle.parquet"} {
		dir := run(t, decode(), 100)
		writeFile(t, dir, name, []byte("PAR1 and nothing more PAR1"))
		if _, err := Analyze(context.Background(), dir, Options{}); err == nil ||
			!strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := analyze(t, run(t, decode(), 100), Options{})
	if w := r.Type("weight"); w == nil || w.Retention.P99 != 30 || w.Bytes != 0 {
		t.Errorf("%+v", w)
	}
}

// TestInterrupted: a run that is no longer wanted is not read to its end.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Analyze(ctx, decodeRun(t), Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEmpty: a table without rows is a report without figures.
func TestEmpty(t *testing.T) {
	r := analyze(t, run(t, nil, 1), Options{})
	var b bytes.Buffer
	if err := errors.Join(r.WriteText(&b, ByType, 10), r.WriteMetrics(&b)); err != nil || len(r.Types) != 0 ||
		r.Seconds() != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// FuzzAnalyze reads damaged tables: an error or a report, and never a panic.
func FuzzAnalyze(f *testing.F) {
	whole := parquet(f, traceSchema(table.Version), decode()[:40], 16)
	seeds := 150
	if testing.Short() {
		seeds = 15
	}
	for at := 0; at < len(whole); at += 1 + len(whole)/seeds {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		f.Add(damaged)
	}
	f.Add(whole)
	dir := f.TempDir()
	writeFile(f, dir, rundir.RegionsName, regionMap(f, decodeRegions))
	f.Fuzz(func(t *testing.T, content []byte) {
		mine := t.TempDir()
		os.Link(filepath.Join(dir, rundir.RegionsName), filepath.Join(mine, rundir.RegionsName))
		writeFile(t, mine, rundir.TraceName, content)
		r, err := Analyze(context.Background(), mine, Options{})
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := errors.Join(r.WriteText(&b, ByType, 3), r.WriteMetrics(&b)); err != nil {
			t.Error(err)
		}
	})
}
