package memory

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// testBegin is the Unix time that traces of tests begin at.
const testBegin = int64(1_700_000_000_000_000_000)

const second = int64(1e9)

// row is one of a trace: numbers and texts by column.
type row map[int]any

// traceSchema is that of a table of accesses.
func traceSchema(version string) table.Schema {
	s := table.Schema{Metadata: [][2]string{{table.VersionKey, version}}}
	kinds := map[memtrace.ColumnKind]table.Kind{memtrace.ColumnInt32: table.Int32, memtrace.ColumnInt64: table.Int64,
		memtrace.ColumnUint64: table.Uint64, memtrace.ColumnText: table.Text}
	for _, c := range memtrace.TraceColumns() {
		s.Columns = append(s.Columns, table.Column{Name: c.Name, Kind: kinds[c.Kind], Null: true})
	}
	return s
}

// putRows adds rows to a batch.
func putRows(t testing.TB, b *table.Batch, rows []row) {
	t.Helper()
	for _, r := range rows {
		for column, v := range r {
			switch v := v.(type) {
			case string:
				b.Text(column, v)
			case int:
				b.Int(column, int64(v))
			case int64:
				b.Int(column, v)
			default:
				t.Fatalf("column %d is %T", column, v)
			}
		}
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
}

// parquet is a table of a schema, in row groups of so many rows.
func parquet(t testing.TB, s table.Schema, rows []row, group int) []byte {
	t.Helper()
	var out bytes.Buffer
	p, err := table.NewParquet(&out, s)
	if err != nil {
		t.Fatal(err)
	}
	b := table.NewBatch(s)
	for len(rows) > 0 {
		n := min(group, len(rows))
		b.Reset()
		putRows(t, b, rows[:n])
		if err := p.Write(b); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func writeFile(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// access is a row of the ledger at a time after the beginning.
func access(ns int64, op memtrace.AccessOp, kind memtrace.RegionType, region, buffer, offset, size int) row {
	return row{memtrace.TraceTime: testBegin + ns, memtrace.TraceOp: op.String(),
		memtrace.TraceRegionType: kind.String(), memtrace.TraceRegion: region, memtrace.TraceBuffer: buffer,
		memtrace.TraceOffset: offset, memtrace.TraceSize: size, memtrace.TraceCollector: "graph",
		memtrace.TracePhase: "generation", memtrace.TraceCount: 1, memtrace.TracePieces: 1,
		memtrace.TraceFlags: 0, memtrace.TraceTimeSource: "graph"}
}

// with adds columns to a row.
func (r row) with(pairs ...any) row {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(r, pairs[i].(int))
			continue
		}
		r[pairs[i].(int)] = pairs[i+1]
	}
	return r
}

// region is a row of region_map.parquet.
type regionFixture struct {
	id             int
	kind, name, kv string
	layer          int
	buffer, offset int
	bytes          int
	addr           int
	ctx            int // of a cache, one more than its number; 0: not reported
}

func regionMap(t testing.TB, regions []regionFixture) []byte {
	t.Helper()
	s := table.Schema{Metadata: [][2]string{{table.VersionKey, table.Version}}, Columns: []table.Column{
		{Name: "region_id", Kind: table.Int32}, {Name: "region_type", Kind: table.Text},
		{Name: "name", Kind: table.Text}, {Name: "size_bytes", Kind: table.Int64},
		{Name: "layer", Kind: table.Int32, Null: true}, {Name: "kv", Kind: table.Text, Null: true},
		{Name: "buffer_id", Kind: table.Int64, Null: true}, {Name: "offset", Kind: table.Int64, Null: true},
		{Name: "start_addr", Kind: table.Uint64, Null: true}, {Name: "alloc_ns", Kind: table.Int64, Null: true},
		{Name: "ctx", Kind: table.Int32, Null: true},
	}}
	var rows []row
	for _, g := range regions {
		r := row{0: g.id, 1: g.kind, 2: g.name, 3: g.bytes, 6: g.buffer, 7: g.offset, 9: testBegin}
		if g.kv != "" {
			r[4], r[5] = g.layer, g.kv
		}
		if g.addr != 0 {
			r[8] = g.addr
		}
		if g.ctx != 0 {
			r[10] = g.ctx - 1
		}
		rows = append(rows, r)
	}
	return parquet(t, s, rows, 1000)
}

// life is a row of kv_block_lifecycle.parquet.
type life struct {
	layer              int
	kv                 string
	first, end, bytes  int
	write, read, evict int64 // below 0: never
	reason             string
	ctx                int
}

func lifeTable(t testing.TB, lives []life) []byte {
	t.Helper()
	s := table.Schema{Metadata: [][2]string{{table.VersionKey, table.Version}}, Columns: []table.Column{
		{Name: "layer", Kind: table.Int32}, {Name: "kv", Kind: table.Text}, {Name: "cell_start", Kind: table.Int32},
		{Name: "cell_end", Kind: table.Int32},
		{Name: "first_write_ns", Kind: table.Int64, Null: true}, {Name: "last_read_ns", Kind: table.Int64, Null: true},
		{Name: "evict_ns", Kind: table.Int64, Null: true},
		{Name: "evict_reason", Kind: table.Text, Null: true}, {Name: "cells", Kind: table.Int32},
		{Name: "cell_bytes", Kind: table.Int64},
		{Name: "ctx", Kind: table.Int32},
	}}
	var rows []row
	for _, l := range lives {
		r := row{0: l.layer, 1: l.kv, 2: l.first, 3: l.end, 8: l.end - l.first, 9: l.bytes, 10: l.ctx}
		for column, ns := range map[int]int64{4: l.write, 5: l.read, 6: l.evict} {
			if ns >= 0 {
				r[column] = testBegin + ns
			}
		}
		if l.evict >= 0 {
			r[7] = l.reason
		}
		rows = append(rows, r)
	}
	return parquet(t, s, rows, 1000)
}

// run is a run directory with a trace in row groups of so many rows.
func run(t testing.TB, rows []row, group int) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, rundir.TraceName, parquet(t, traceSchema(table.Version), rows, group))
	return dir
}

func analyze(t testing.TB, dir string, o Options) *Report {
	t.Helper()
	r, err := Analyze(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refused is the error that a run has.
func refused(t testing.TB, dir string) error {
	t.Helper()
	_, err := Analyze(context.Background(), dir, Options{})
	if !errors.Is(err, ErrNoTrace) {
		t.Errorf("%v is no ErrNoTrace", err)
	}
	return err
}
