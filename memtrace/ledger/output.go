package ledger

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// output is where rows go: what rows of all kinds have in common.
type output struct {
	*Writer
	offset int64                     // what makes a monotonic time a Unix time
	newest int64                     // monotonic time of what was written
	fill   func(column int, v int64) // of one row
}

// step sets the step of n rows, if it is known.
func (w *output) step(step ggmlhooks.Phase, n int) {
	if step != ggmlhooks.PhaseUnknown {
		w.Fill(memtrace.TraceStep, w.Code(memtrace.TraceStep, step.String()), n)
	}
}

// lasting calls put for the columns of an access that say the same in every execution of a graph, texts by their codes.
func (w *output) lasting(a *access, put func(column int, v int64)) {
	text := func(column int, v string) {
		if v != "" {
			put(column, w.Code(column, v))
		}
	}
	text(memtrace.TraceOp, a.op.String())
	if a.buffer.Host {
		put(memtrace.TraceAddr, int64(a.buffer.Base+a.offset))
	}
	text(memtrace.TraceDevice, a.buffer.Device)
	put(memtrace.TraceBuffer, int64(a.buffer.ID))
	put(memtrace.TraceOffset, int64(a.offset))
	if a.flags&memtrace.TraceUnknown == 0 {
		put(memtrace.TraceSize, int64(a.size()))
		put(memtrace.TracePieces, a.pieces)
	}
	kind := memtrace.Other
	if a.region != nil {
		root := a.region.Root()
		put(memtrace.TraceRegion, int64(root.ID))
		kind = root.Type
	}
	text(memtrace.TraceRegionType, kind.String())
	flags := a.flags
	switch {
	case a.scattered:
		flags |= memtrace.TraceScattered
	case a.pieces > 1:
		put(memtrace.TraceStride, int64(a.stride))
	}
	put(memtrace.TraceFlags, int64(flags))
	if a.layer != none {
		put(memtrace.TraceLayer, int64(a.layer))
	}
	if a.node != none {
		put(memtrace.TraceOpSeq, int64(a.node))
		text(memtrace.TraceGGMLOp, a.name)
		put(memtrace.TraceOperand, int64(a.number))
	}
}

// setIfKnown sets a number, if it is known.
func (w *output) setIfKnown(column int, v int32) {
	if v != none {
		w.Int(column, int64(v))
	}
}

// setPlace sets where a row's bytes begin.
func (w *output) setPlace(b *memtrace.Buffer, offset uint64) {
	if b.Host {
		w.Int(memtrace.TraceAddr, int64(b.Base+offset))
	}
	w.Text(memtrace.TraceDevice, b.Device)
	w.Int(memtrace.TraceBuffer, int64(b.ID))
	w.Int(memtrace.TraceOffset, int64(offset))
}

// region sets what lies there.
func (w *output) region(region *memtrace.Region) {
	if region == nil {
		w.Text(memtrace.TraceRegionType, memtrace.Other.String())
		return
	}
	root := region.Root()
	w.Int(memtrace.TraceRegion, int64(root.ID))
	w.Text(memtrace.TraceRegionType, root.Type.String())
}
