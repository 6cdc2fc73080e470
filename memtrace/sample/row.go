package sample

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// Moment is what the process was doing when an access happened. -1 is what is not known, or does not apply.
type Moment struct {
	Phase memtrace.Phase
	Known bool  // the phase is
	Exec  int64 // of a graph
	Token int64
	Ctx   int64
	Seq   int64
	Step  ggmlhooks.Phase // prefill or decode, of all tokens of the graph; PhaseUnknown otherwise
}

// NoMoment is that of an access of which nothing is known but its time.
var NoMoment = Moment{Exec: -1, Token: -1, Ctx: -1, Seq: -1}

// Row is an access with what is known of it.
type Row struct {
	memtrace.Access
	Moment
	// Hit is what lies at the address. Of a region that is not in the region map, Unlisted is true: then only its type
	// is written.
	Hit      memtrace.Hit
	Unlisted bool
	Variable string // at the address, of a program or library
	Device   string
	Block    int64 // of a cache, -1 = not known
	Offset   int64 // in Hit's buffer, where it has one
	Window   int64 // ns before TimeNS in which the access happened; 0 = TimeNS is exact
}

// columns set the values of a row of the table of accesses, by the column's number, and end the row.
type columns interface {
	Int(column int, v int64)
	Text(column int, v string)
	EndRow() error
}

// Write writes a row. offset is what makes a CLOCK_MONOTONIC time a Unix time.
func (r *Row) Write(w columns, offset int64) error {
	w.Int(memtrace.TraceTime, r.TimeNS+offset)
	if r.Known {
		w.Text(memtrace.TracePhase, r.Phase.String())
	}
	if r.Step != ggmlhooks.PhaseUnknown {
		w.Text(memtrace.TraceStep, r.Step.String())
	}
	w.Text(memtrace.TraceOp, r.Op.String())
	w.Int(memtrace.TraceAddr, int64(r.Addr))
	positive(w, memtrace.TraceSize, int64(r.Size))
	w.Text(memtrace.TraceRegionType, r.kind().String())
	if r.Hit.Region == nil && r.kind() != memtrace.Other {
		w.Int(memtrace.TraceFlags, int64(memtrace.TraceInferred))
	}
	if region := r.Hit.Region; region != nil && !r.Unlisted {
		w.Int(memtrace.TraceRegion, int64(region.Root().ID))
		natural(w, memtrace.TraceLayer, int64(region.Layer))
		if region.Buffer != 0 {
			w.Int(memtrace.TraceBuffer, int64(region.Buffer))
			w.Int(memtrace.TraceOffset, r.Offset)
		}
	}
	natural(w, memtrace.TraceToken, r.Token)
	natural(w, memtrace.TraceSeq, r.Seq)
	natural(w, memtrace.TraceKVBlock, r.Block)
	positive(w, memtrace.TraceTID, int64(r.TID))
	natural(w, memtrace.TraceCPU, int64(r.CPU))
	w.Text(memtrace.TraceDevice, r.Device)
	w.Text(memtrace.TraceCollector, r.Collector.String())
	natural(w, memtrace.TraceGraphSeq, r.Exec)
	natural(w, memtrace.TraceCtx, r.Ctx)
	w.Text(memtrace.TraceCacheLevel, r.Level.String())
	positive(w, memtrace.TraceLatency, int64(r.Latency))
	w.Text(memtrace.TraceSymbol, r.Symbol)
	positive(w, memtrace.TraceWeight, int64(r.Weight))
	w.Int(memtrace.TraceCount, 1)
	positive(w, memtrace.TraceWindow, r.Window)
	positive(w, memtrace.TracePID, int64(r.PID))
	w.Text(memtrace.TraceDataSymbol, r.Variable)
	return w.EndRow()
}

// kind is the type of region that was accessed. Where it is unknown what lies at the address it follows from the
// function's name, if anything does.
func (r *Row) kind() memtrace.RegionType {
	if r.Hit.Region == nil {
		return memtrace.TypeOfFunction(r.Symbol)
	}
	return r.Hit.Region.Type
}

// natural sets a number that is not below 0.
func natural(w columns, column int, v int64) {
	if v >= 0 {
		w.Int(column, v)
	}
}

// positive sets a number that is above 0.
func positive(w columns, column int, v int64) {
	if v > 0 {
		w.Int(column, v)
	}
}

// Tally counts the rows of a collector.
type Tally struct {
	Rows  uint64            `json:"rows"`
	Types map[string]uint64 `json:"region_types"` // rows by what they touched
	// Unknown are rows of which it is not known at all what they touched. They are of type other, as is what lies
	// in mapped files.
	Unknown uint64 `json:"unknown"`
}

// Count counts a row.
func (t *Tally) Count(r *Row) {
	if t.Types == nil {
		t.Types = map[string]uint64{}
	}
	t.Rows++
	if r.Hit.Region == nil && r.kind() == memtrace.Other {
		t.Unknown++
	}
	t.Types[r.kind().String()]++
}
