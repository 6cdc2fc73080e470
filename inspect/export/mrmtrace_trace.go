package export

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// maxRows bounds a trace: mrm-trace reads it as a whole.
const maxRows = 100 << 20

// errRows occurs when a trace would have more rows than mrm-trace can read.
var errRows = errors.New("too many rows: mrm-trace reads a trace as a whole; record fewer tokens")

// deviceShift makes an address of a place in a buffer of a device: buffers of devices have no addresses of the host.
const deviceShift = 40

// nowhere is added to a type for the number of a region that the run does not list.
const nowhere = 1 << 31

// mrmTracer writes trace.parquet.
type mrmTracer struct {
	runID    string
	out      *table.Parquet
	batch    *table.Batch
	rows     int64
	skipped  map[string]int64 // rows that have no counterpart, by reason
	device   int64            // accesses of devices
	ledger   bool             // the run has a ledger: samples are left out
	observed memtrace.Observed
}

func newMRMTracer(w io.Writer, runID string, ledger bool) (*mrmTracer, error) {
	s := schemaOf(mrmTraceColumns)
	out, err := table.NewParquet(w, s)
	if err != nil {
		return nil, err
	}
	return &mrmTracer{runID: runID, out: out, batch: table.NewBatch(s), ledger: ledger, skipped: map[string]int64{}},
		nil
}

// pageAccess is one row of llamatap's table.
type pageAccess struct {
	ns, region, token, thread, cpu int64 // -1: unknown, but for ns
	phase, symbol, level           string
	op                             memtrace.AccessOp
	kind                           memtrace.RegionType
}

// addRows adds rows of llamatap's table.
func (t *mrmTracer) addRows(r *memory.Rows) error {
	for row := range r.N {
		if err := t.row(r, row); err != nil {
			return err
		}
	}
	return nil
}

// row writes a row of llamatap's table: a row for every page that it touched.
func (t *mrmTracer) row(r *memory.Rows, row int) (err error) {
	text := func(column int) string {
		if v := r.Columns[column]; v != nil && !v.Null(row) {
			return v.Text(row)
		}
		return ""
	}
	number := func(column int, unknown int64) int64 {
		if v := r.Columns[column]; v != nil && !v.Null(row) {
			return v.Ints[row]
		}
		return unknown
	}
	fromLedger := text(memtrace.TraceCollector) == memtrace.CollectorGraph.String()
	a := pageAccess{
		ns: number(memtrace.TraceTime, 0), region: number(memtrace.TraceRegion, -1),
		token: number(memtrace.TraceToken, -1), thread: number(memtrace.TraceTID, -1),
		cpu: number(memtrace.TraceCPU, -1), phase: phaseOf(text(memtrace.TracePhase)),
		symbol: text(memtrace.TraceSymbol), level: text(memtrace.TraceCacheLevel),
	}
	if a.op, err = memtrace.ParseAccessOp(text(memtrace.TraceOp)); err == nil {
		a.kind, err = memtrace.ParseRegionType(text(memtrace.TraceRegionType))
	}
	if err != nil {
		return err
	}
	flags := memtrace.TraceFlag(number(memtrace.TraceFlags, 0))
	addr := number(memtrace.TraceAddr, -1)
	switch {
	case t.ledger && !fromLedger:
		t.skipped["samples, for the run has a ledger"]++
		return nil
	case a.op == memtrace.OpAlloc || a.op == memtrace.OpFree:
		return nil
	case a.op == memtrace.OpUnknown:
		t.skipped["samples that are neither reads nor writes as far as is known"]++
		return nil
	case flags&memtrace.TracePadded != 0:
		t.skipped["accesses to cells that a mask hides"]++
		return nil
	case flags&(memtrace.TraceUnknown|memtrace.TraceScattered) != 0:
		t.skipped["accesses of which it is not known which bytes they touched"]++
		return nil
	case fromLedger && number(memtrace.TraceWindow, 0) > 0:
		return errors.New(
			"the run was recorded with --tap-ledger windows, which has sums and no accesses: record with " +
				"--tap-ledger rows")
	case addr < 0 && number(memtrace.TraceBuffer, 0) == 0:
		t.skipped["accesses without an address"]++
		return nil
	case addr < 0:
		addr = number(memtrace.TraceBuffer, 0)<<deviceShift | number(memtrace.TraceOffset, 0)
		t.device++
	}
	size, pieces, stride := uint64(number(memtrace.TraceSize, 1)), uint64(max(number(memtrace.TracePieces, 1), 1)),
		uint64(number(memtrace.TraceStride, 0))
	return t.pages(&a, uint64(addr), size/pieces, pieces, stride)
}

// pages writes a row for each page that an access touched, with the first address in it.
func (t *mrmTracer) pages(a *pageAccess, addr, size, pieces, stride uint64) error {
	last := ^uint64(0)
	for i := range pieces {
		from := addr + i*stride
		for page := from / memtrace.PageBytes; page <= (from+max(size, 1)-1)/memtrace.PageBytes; page++ {
			if page == last {
				continue
			}
			last = page
			if err := t.write(a, max(from, page*memtrace.PageBytes)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *mrmTracer) write(a *pageAccess, addr uint64) error {
	if t.rows == maxRows {
		return errRows
	}
	name, kind := typeOf(a.kind)
	region := a.region + 1
	if a.region < 0 {
		region = nowhere + int64(kind)
	}
	op := "load"
	if a.op == memtrace.OpWrite {
		op = "store"
	}
	if err := t.observed.Add(a.ns, region, kind, a.op, addr); err != nil {
		return fmt.Errorf("%w: record fewer tokens", err)
	}
	b := t.batch
	b.Text(colRun, t.runID)
	b.Int(colSample, t.rows)
	b.Int(colTime, a.ns)
	optional(b, colPhase, a.phase)
	b.Int(colAddress, int64(addr))
	b.Int(colPage, int64(addr/memtrace.PageBytes))
	b.Text(colOp, op)
	optional(b, colSymbol, a.symbol)
	b.Text(colType, name)
	b.Int(colRegion, region)
	optional(b, colLevel, a.level)
	for column, v := range map[int]int64{colCPU: a.cpu, colThread: a.thread, colToken: a.token} {
		if v >= 0 {
			b.Int(column, v)
		}
	}
	t.rows++
	if err := b.EndRow(); err != nil || b.Rows() < 1<<16 {
		return err
	}
	return t.flush()
}

func optional(b *table.Batch, column int, text string) {
	if text != "" {
		b.Text(column, text)
	}
}

func (t *mrmTracer) flush() error {
	err := t.out.Append(t.batch)
	t.batch.Reset()
	return err
}

// close completes the table.
func (t *mrmTracer) close() error { return errors.Join(t.flush(), t.out.Close()) }

// notes say what has no counterpart.
func (t *mrmTracer) notes() (notes []string) {
	for _, why := range slices.Sorted(maps.Keys(t.skipped)) {
		notes = append(notes, fmt.Sprintf("%s left out: %s", present.Plural(t.skipped[why], "row"), why))
	}
	if t.device > 0 {
		notes = append(notes, fmt.Sprintf("accesses of devices, %d: their addresses are buffer_id · 2^%d + offset",
			t.device, deviceShift))
	}
	return notes
}
