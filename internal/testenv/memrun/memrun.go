// Package memrun makes run directories with tables of memory, for tests of what is computed from them.
package memrun

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// Run is what a run directory is to hold. Times are Unix nanoseconds, 0 is null.
type Run struct {
	Model    string
	Metadata any    // of metadata.json
	Version  string // of the tables; "": the present one
	Regions  []Region
	Lives    []Life
	Trace    []Access
	// Parts cuts the trace into so many files; 0 and 1 are one.
	Parts int
	Files map[string]string // further ones
	KV    kvcache.Snapshot  // of the lives
}

// Region is a row of region_map.parquet.
type Region struct {
	ID                    int64
	Type, Name, KV        string
	Layer, Buffer, Offset int64 // Layer: -1 is none
	Start, Bytes          int64
	FirstWrite, LastWrite int64
	FirstRead, LastRead   int64
	Writes, Reads         int64
	Written, Read         int64
	Alloc                 int64
}

// Life is a row of kv_block_lifecycle.parquet.
type Life struct {
	Block, Layer, CellBytes, Cells int64
	KV, Reason                     string // "" continued
	Alloc, Write, Read, Evict      int64
	Writes, Reads                  int64
}

// Access is a row of trace.parquet.
type Access struct {
	NS                                                 int64
	Phase, Op, Type, Collector                         string
	Region, Addr, Size, Buffer, Offset, Pieces, Stride int64
	Graph, Token                                       int64
	Flags                                              memtrace.TraceFlag
}

// Write makes the run below a folder, sealed, and returns its path.
func (r *Run) Write(t testing.TB, out string) string {
	t.Helper()
	d, err := rundir.Create(out, r.Model, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	metadata := r.Metadata
	if metadata == nil {
		metadata = rundir.Metadata{Version: 1, RunID: d.ID(), Model: rundir.Model{ID: r.Model},
			Tokens: &rundir.Tokens{Prompt: 4, Generated: 6, Setup: 2}}
	}
	if err := d.WriteJSON(rundir.MetadataName, metadata); err != nil {
		t.Fatal(err)
	}
	if r.Regions != nil {
		r.write(t, d, rundir.RegionsName, regionColumns, len(r.Regions),
			func(b *table.Batch, i int) { r.Regions[i].put(b) })
	}
	if r.Lives != nil {
		r.write(t, d, rundir.LivesName, lifeColumns, len(r.Lives), func(b *table.Batch, i int) { r.Lives[i].put(b) })
	}
	r.writeTrace(t, d)
	for name, text := range r.Files {
		w, err := d.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	return d.Path()
}

func (r *Run) writeTrace(t testing.TB, d *rundir.Dir) {
	if r.Trace == nil {
		return
	}
	parts := max(r.Parts, 1)
	for part := range parts {
		name := rundir.TraceName
		if part > 0 {
			name = fmt.Sprintf("trace.%03d.parquet", part)
		}
		rows := r.Trace[len(r.Trace)*part/parts : len(r.Trace)*(part+1)/parts]
		r.write(t, d, name, traceColumns, len(rows), func(b *table.Batch, i int) { rows[i].put(b) })
	}
}

// write writes a table in two row groups.
func (r *Run) write(t testing.TB, d *rundir.Dir, name string, columns []table.Column, n int,
	put func(*table.Batch, int)) {
	t.Helper()
	version := r.Version
	if version == "" {
		version = table.Version
	}
	w, err := d.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	last, err := json.Marshal(r.KV)
	if err != nil {
		t.Fatal(err)
	}
	s := table.Schema{Columns: columns, Metadata: [][2]string{{table.VersionKey, version},
		{kvcache.SnapshotKey, string(last)}}}
	out, err := table.NewParquet(w, s)
	if err != nil {
		t.Fatal(err)
	}
	b := table.NewBatch(s)
	for i := range n {
		put(b, i)
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			if err := out.Write(b); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	for _, err := range []error{out.Write(b), out.Close(), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// row puts values into columns in order: integers, of which 0 is null where the column may be, and texts.
func row(b *table.Batch, columns []table.Column, values ...any) {
	for i, v := range values {
		switch v := v.(type) {
		case int64:
			if v != 0 || !columns[i].Null {
				b.Int(i, v)
			}
		case string:
			if v != "" || !columns[i].Null {
				b.Text(i, v)
			}
		case bool:
			b.Bool(i, v)
		}
	}
}

func text(name string) table.Column { return table.Column{Name: name, Kind: table.Text} }
func textNull(name string) table.Column {
	return table.Column{Name: name, Kind: table.Text, Null: true}
}
func int64Column(name string) table.Column { return table.Column{Name: name, Kind: table.Int64} }
func wholeNull(name string) table.Column {
	c := table.Column{Name: name, Kind: table.Int64, Null: true}
	if strings.HasSuffix(name, "_ns") && name != "window_ns" {
		c.Unit = table.UnixNS
	}
	return c
}

var regionColumns = []table.Column{
	{Name: "region_id", Kind: table.Int32}, text("region_type"), text("name"), textNull("kv"),
	{Name: "layer", Kind: table.Int32, Null: true},
	wholeNull("buffer_id"), wholeNull("offset"), {Name: "start_addr", Kind: table.Uint64, Null: true},
	int64Column("size_bytes"),
	wholeNull("first_write_ns"), wholeNull("last_write_ns"), wholeNull("first_read_ns"), wholeNull("last_read_ns"),
	int64Column("n_writes"), int64Column("n_reads"),
	int64Column("bytes_written"), wholeNull("bytes_read"), wholeNull("alloc_ns"),
	{Name: "end_addr", Kind: table.Uint64, Null: true}, textNull("device"),
}

func (r *Region) put(b *table.Batch) {
	end := int64(0)
	if r.Start != 0 {
		end = r.Start + r.Bytes
	}
	if r.Layer >= 0 {
		b.Int(4, r.Layer)
	}
	if r.Buffer != 0 {
		b.Int(6, r.Offset)
	}
	row(b, regionColumns, r.ID, r.Type, r.Name, r.KV, nil, r.Buffer, nil, r.Start, r.Bytes, r.FirstWrite, r.LastWrite,
		r.FirstRead, r.LastRead,
		r.Writes, r.Reads, r.Written, r.Read, r.Alloc, end, "CPU")
}

var lifeColumns = []table.Column{
	{Name: "block_id", Kind: table.Int32}, {Name: "layer", Kind: table.Int32}, text("kv"),
	{Name: "seq_id", Kind: table.Int32, Null: true},
	{Name: "pos_start", Kind: table.Int32, Null: true}, {Name: "pos_end", Kind: table.Int32, Null: true},
	{Name: "cell_start", Kind: table.Int32}, {Name: "cell_end", Kind: table.Int32},
	wholeNull("alloc_ns"), wholeNull("first_write_ns"), wholeNull("last_write_ns"), int64Column("n_writes"),
	wholeNull("first_read_ns"), wholeNull("last_read_ns"), int64Column("n_reads"),
	wholeNull("evict_ns"), textNull("evict_reason"), {Name: "censored", Kind: table.Bool},
	{Name: "ctx", Kind: table.Int32}, text("cache"), {Name: "cells", Kind: table.Int32},
	int64Column("cell_bytes"), {Name: "sharers", Kind: table.Int32}, {Name: "moves", Kind: table.Int32}, text("origin"),
}

func (l *Life) put(b *table.Batch) {
	first := l.Block * l.Cells
	row(b, lifeColumns, l.Block, l.Layer, l.KV, int64(0), first, first+l.Cells, first, first+l.Cells, l.Alloc, l.Write,
		l.Write, l.Writes, l.Write, l.Read, l.Reads,
		l.Evict, l.Reason, l.Reason == "", int64(0), "base", l.Cells, l.CellBytes, int64(1), int64(0), "written")
}

var traceColumns = []table.Column{
	wholeNull("ts_ns"), textNull("phase"), textNull("op"), {Name: "addr", Kind: table.Uint64, Null: true},
	{Name: "size", Kind: table.Uint64, Null: true},
	wholeNull("region_id"), textNull("region_type"), {Name: "layer", Kind: table.Int32, Null: true},
	{Name: "token_index", Kind: table.Int32, Null: true},
	{Name: "seq_id", Kind: table.Int32, Null: true}, {Name: "kv_block", Kind: table.Int32, Null: true},
	{Name: "tid", Kind: table.Int32, Null: true}, textNull("device"),
	textNull("collector"), wholeNull("graph_seq"), {Name: "op_seq", Kind: table.Int32, Null: true},
	textNull("time_source"), {Name: "ctx", Kind: table.Int32, Null: true},
	textNull("cache_level"), wholeNull("latency_cycles"), textNull("symbol"),
	{Name: "weight", Kind: table.Uint64, Null: true},
	{Name: "buffer_id", Kind: table.Uint64, Null: true}, {Name: "offset", Kind: table.Uint64, Null: true},
	textNull("ggml_op"), {Name: "operand", Kind: table.Int32, Null: true},
	wholeNull("pieces"), wholeNull("stride"), {Name: "flags", Kind: table.Int32, Null: true}, wholeNull("count"),
	wholeNull("window_ns"),
}

func (a *Access) put(b *table.Batch) {
	pieces := max(a.Pieces, 1)
	// The first graph, token and region, and an offset of 0, are not nulls: they are written by hand.
	row(b, traceColumns, a.NS, a.Phase, a.Op, a.Addr, a.Size)
	b.Int(5, a.Region)
	b.Text(6, a.Type)
	b.Int(8, a.Token)
	b.Text(12, "CPU")
	b.Text(13, a.Collector)
	b.Int(14, a.Graph)
	b.Int(15, 0)
	b.Text(16, "graph")
	b.Int(17, 0)
	if a.Buffer != 0 {
		b.Int(22, a.Buffer)
		b.Int(23, a.Offset)
	}
	b.Int(26, pieces)
	if pieces > 1 {
		b.Int(27, a.Stride)
	}
	b.Int(28, int64(a.Flags))
	b.Int(29, 1)
}
