package ledger

import (
	"encoding/json"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// execution writes the accesses of an execution, or adds them to a window.
func (r *Recorder) execution(x *execution) error {
	r.doubts.Executions++
	r.lastNS = max(r.lastNS, x.end)
	if x.failed {
		r.doubts.Failed++
		return nil
	}
	if x.open {
		r.doubts.Undecided++
	}
	r.doubts.Unplaced += x.plan.unplaced
	if !x.plan.loaded {
		x.plan.loaded = true
		for i := range x.plan.items {
			if err := r.load(x.plan.items[i].region, none); err != nil {
				return err
			}
		}
	}
	r.ran = r.ran || x.phase == memtrace.Generation && !x.open
	if r.o.Window > 0 {
		return r.sumUp(x)
	}
	return r.rows(x)
}

// row writes an access whose bytes are another in each execution.
func (r *Recorder) row(x *execution, a *access) error {
	r.doubts.Accesses++
	w := r.out
	r.lasting(a, r.fill)
	ns, source := x.interval(a.node)
	w.Int(memtrace.TraceTime, ns+r.o.UnixOffset)
	w.Text(memtrace.TraceTimeSource, source.String())
	r.known(memtrace.TraceToken, a.token)
	r.known(memtrace.TraceSeq, a.seq)
	r.known(memtrace.TraceKVBlock, a.block)
	r.step(x.stepOf(a.token), 1)
	r.common(x, 1)
	return w.EndRow()
}

// step sets the step of n rows, if it is known.
func (r *Recorder) step(step ggmlhooks.Phase, n int) {
	if step != ggmlhooks.PhaseUnknown {
		r.out.Fill(memtrace.TraceStep, r.out.Code(memtrace.TraceStep, step.String()), n)
	}
}

// common sets what is the same in n rows of an execution.
func (r *Recorder) common(x *execution, n int) {
	w := r.out
	if !x.open {
		w.Fill(memtrace.TracePhase, w.Code(memtrace.TracePhase, x.phase.String()), n)
	}
	w.Fill(memtrace.TraceCollector, w.Code(memtrace.TraceCollector, memtrace.CollectorGraph.String()), n)
	w.Fill(memtrace.TraceGraphSeq, int64(x.number), n)
	w.Fill(memtrace.TraceCtx, int64(x.ctx), n)
	w.Fill(memtrace.TraceCount, 1, n)
}

// lasting calls put for the columns of an access that say the same in every execution of a graph, texts by their codes.
func (r *Recorder) lasting(a *access, put func(column int, v int64)) {
	text := func(column int, v string) {
		if v != "" {
			put(column, r.out.Code(column, v))
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
	put(memtrace.TraceOpSeq, int64(a.node))
	text(memtrace.TraceGGMLOp, a.name)
	put(memtrace.TraceOperand, int64(a.number))
}

// known sets a number, if it is known.
func (r *Recorder) known(column int, v int32) {
	if v != none {
		r.out.Int(column, int64(v))
	}
}

// place says where a row's bytes begin.
func (r *Recorder) place(b *memtrace.Buffer, offset uint64) {
	if b.Host {
		r.out.Int(memtrace.TraceAddr, int64(b.Base+offset))
	}
	r.out.Text(memtrace.TraceDevice, b.Device)
	r.out.Int(memtrace.TraceBuffer, int64(b.ID))
	r.out.Int(memtrace.TraceOffset, int64(offset))
}

// region says what lies there.
func (r *Recorder) region(region *memtrace.Region) {
	if region == nil {
		r.out.Text(memtrace.TraceRegionType, memtrace.Other.String())
		return
	}
	root := region.Root()
	r.out.Int(memtrace.TraceRegion, int64(root.ID))
	r.out.Text(memtrace.TraceRegionType, root.Type.String())
}

// about is what the table's metadata says of the ledger.
func (r *Recorder) about() (key, value string) {
	text, _ := json.Marshal(r.doubts) // of numbers and a word
	return memtrace.LedgerKey, string(text)
}
