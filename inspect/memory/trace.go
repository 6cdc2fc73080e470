package memory

// Hot path: per row of the ledger one touch, and nothing that allocates.

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// needed are the columns that a table of accesses must have, others those that are read where they are there.
var (
	needed = []int{memtrace.TraceTime, memtrace.TraceOp, memtrace.TraceSize, memtrace.TraceRegion,
		memtrace.TraceRegionType, memtrace.TraceCollector}
	others = []int{memtrace.TracePhase, memtrace.TraceAddr, memtrace.TraceToken, memtrace.TraceGraphSeq,
		memtrace.TraceTimeSource, memtrace.TraceWeight, memtrace.TraceBuffer,
		memtrace.TraceOffset, memtrace.TracePieces, memtrace.TraceStride, memtrace.TraceFlags, memtrace.TraceCount,
		memtrace.TraceWindow}
)

// kindOf is how the table's reader calls the type of a column.
func kindOf(c memtrace.TraceColumn) table.Kind {
	if c.Kind == memtrace.ColumnText {
		return table.Text
	}
	return table.Int64
}

// rows are some rows of a table of accesses, by column.
type rows struct {
	n       int
	columns [64]*table.Vector // by number of the column; nil: the table has none
	ints    [64][]int64       // of integers: 0 where there is no value, or no column
	zeros   []int64
	perf    table.Vector // of a foreign table: all its rows are samples
	ops     words[memtrace.AccessOp]
	types   words[memtrace.RegionType]
	from    words[memtrace.Collector]
	phases  words[memtrace.Phase]
}

// words translate texts to what they stand for, each once.
type words[T any] struct {
	known []T // by code + 1; the first is for rows without a text
	parse func(string) (T, error)
}

// addDictionary reads the dictionary of a column's texts.
func (w *words[T]) addDictionary(v *table.Vector, none T) error {
	if len(w.known) == 0 {
		w.known = append(w.known, none)
	}
	for v != nil && len(w.known) <= len(v.Words) {
		is, err := w.parse(v.Words[len(w.known)-1])
		if err != nil {
			return err
		}
		w.known = append(w.known, is)
	}
	return nil
}

// valueAt returns the value that a row's text names.
func (w *words[T]) valueAt(v *table.Vector, row int) T {
	if v == nil {
		return w.known[0]
	}
	return w.known[v.Codes[row]+1]
}

// addDictionaries reads the dictionaries of all text columns.
func (r *rows) addDictionaries() error {
	c := &r.columns
	if err := r.ops.addDictionary(c[memtrace.TraceOp], memtrace.OpUnknown); err != nil {
		return err
	}
	if err := r.types.addDictionary(c[memtrace.TraceRegionType], memtrace.Other); err != nil {
		return err
	}
	if err := r.phases.addDictionary(c[memtrace.TracePhase], memtrace.Generation); err != nil {
		return err
	}
	return r.from.addDictionary(c[memtrace.TraceCollector], memtrace.CollectorGraph)
}

// number is the integer of a row, def where there is none.
func number(v *table.Vector, row int, def int64) int64 {
	if v == nil || v.Valid != nil && !v.Valid[row] {
		return def
	}
	return v.Ints[row]
}

// eachRows reads a table of accesses from the first row to the last: what is needed, and other columns where they
// are there.
func eachRows(ctx context.Context, t *table.Table, others []int, f func(*rows) error) error {
	traceColumns, isForeign := memtrace.TraceColumns(), foreign(t)
	form := table.Form{Name: rundir.TraceName}
	for _, c := range needed {
		if name := nameOf(c, isForeign); name != "" {
			form.Columns = append(form.Columns, table.Column{Name: name, Kind: kindOf(traceColumns[c])})
		}
	}
	read, names := []int{}, []string{}
	for _, file := range t.Files {
		check := file.Check
		if isForeign {
			check = file.CheckColumns
		}
		if err := check(form); err != nil {
			return err
		}
	}
	for _, c := range append(append([]int{}, needed...), others...) {
		if name := nameOf(c, isForeign); name != "" && has(t, name) {
			read, names = append(read, c), append(names, name)
		}
	}
	scan, err := t.Scan(names, table.ScanOptions{})
	if err != nil {
		return err
	}
	defer scan.Close()
	r := &rows{
		ops:    words[memtrace.AccessOp]{parse: memtrace.ParseAccessOp},
		types:  words[memtrace.RegionType]{parse: memtrace.ParseRegionType},
		from:   words[memtrace.Collector]{parse: memtrace.ParseCollector},
		phases: words[memtrace.Phase]{parse: memtrace.ParsePhase},
	}
	if isForeign {
		r.ops.parse, r.types.parse = foreignOp, foreignType
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.n = next.N
		for i, c := range read {
			r.columns[c] = next.Columns[i]
			if isText := len(next.Columns[i].Codes) > 0; isText != (traceColumns[c].Kind == memtrace.ColumnText) &&
				next.N > 0 {
				return fmt.Errorf("column %s is not of the type that a table of accesses has: is it another table?",
					names[i])
			}
		}
		if isForeign {
			r.columns[memtrace.TraceCollector] = r.sampled()
		}
		r.spread()
		if err = r.addDictionaries(); err == nil {
			err = f(r)
		}
		if err != nil {
			return err
		}
	}
}

// has reports whether all parts of a table have a column.
func has(t *table.Table, name string) bool {
	for _, f := range t.Files {
		if !f.Has(name) {
			return false
		}
	}
	return len(t.Files) > 0
}

// spread finds the integers of rows.
func (r *rows) spread() {
	for len(r.zeros) < r.n {
		r.zeros = append(r.zeros, make([]int64, r.n-len(r.zeros))...)
	}
	traceColumns := memtrace.TraceColumns()
	for _, some := range [][]int{needed, others} {
		for _, c := range some {
			if traceColumns[c].Kind == memtrace.ColumnText {
				continue
			}
			if r.ints[c] = r.zeros[:r.n]; r.columns[c] != nil {
				r.ints[c] = r.columns[c].Ints
			}
		}
	}
}

// touches fills in the accesses of rows of the ledger, from one on. What is not known of a row is 0, but for its
// region.
func (r *rows) touches(from int, to []memtrace.Touch) {
	end := from + len(to)
	cut := func(column int) []int64 { return r.ints[column][from:end:end] }
	ns, size, region, buffer := cut(memtrace.TraceTime), cut(memtrace.TraceSize), cut(memtrace.TraceRegion),
		cut(memtrace.TraceBuffer)
	offset, addr, pieces, stride := cut(memtrace.TraceOffset), cut(memtrace.TraceAddr), cut(memtrace.TracePieces),
		cut(memtrace.TraceStride)
	flags, count, window := cut(memtrace.TraceFlags), cut(memtrace.TraceCount), cut(memtrace.TraceWindow)
	ops, types := r.columns[memtrace.TraceOp].Codes[from:end:end],
		r.columns[memtrace.TraceRegionType].Codes[from:end:end]
	for i := range to {
		t := &to[i]
		t.NS, t.Size, t.Buffer, t.Region = ns[i], uint64(size[i]), uint64(buffer[i]), int(region[i])
		if t.Offset = uint64(offset[i]); t.Buffer == 0 {
			t.Offset = uint64(addr[i])
		}
		t.Op, t.Type = r.ops.known[ops[i]+1], r.types.known[types[i]+1]
		t.Scattered, t.Ended = memtrace.TraceFlag(flags[i])&(memtrace.TraceScattered|memtrace.TraceUnknown) != 0, false
		t.Pieces, t.Stride, t.Count, t.WindowNS = pieces[i], uint64(stride[i]), count[i], window[i]
		if t.Op == memtrace.OpFree {
			t.Ended = r.phases.valueAt(r.columns[memtrace.TracePhase], from+i) == memtrace.Teardown
		}
	}
	if v := r.columns[memtrace.TraceRegion]; v.Valid != nil {
		for i, valid := range v.Valid[from:end] {
			if !valid {
				to[i].Region = -1
			}
		}
	}
}
