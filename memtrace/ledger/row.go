package ledger

import (
	"encoding/json"

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
	if !x.plan.told {
		x.plan.told = true
		for i := range x.plan.items {
			if err := r.load(x.plan.items[i].region); err != nil {
				return err
			}
		}
	}
	r.ran = r.ran || x.phase == memtrace.Generation && !x.open
	if r.o.Window > 0 {
		return r.sumUp(x)
	}
	return r.visit(x, func(a *access) error { return r.row(x, a) })
}

// row writes an access.
func (r *Recorder) row(x *execution, a *access) error {
	r.doubts.Accesses++
	w := r.out
	ns, source := x.interval(a.node)
	w.Int(memtrace.TraceTime, ns+r.o.UnixOffset)
	if !x.open {
		w.Text(memtrace.TracePhase, x.phase.String())
	}
	w.Text(memtrace.TraceOp, a.op.String())
	r.place(a.buffer, a.offset)
	if a.flags&memtrace.TraceUnknown == 0 {
		w.Int(memtrace.TraceSize, int64(a.size()))
		w.Int(memtrace.TracePieces, a.pieces)
	}
	r.region(a.region)
	flags := a.flags
	switch {
	case a.scattered:
		flags |= memtrace.TraceScattered
	case a.pieces > 1:
		w.Int(memtrace.TraceStride, int64(a.stride))
	}
	w.Int(memtrace.TraceFlags, int64(flags))
	r.known(memtrace.TraceLayer, a.layer)
	r.known(memtrace.TraceToken, a.token)
	r.known(memtrace.TraceSeq, a.seq)
	r.known(memtrace.TraceKVBlock, a.block)
	w.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	w.Int(memtrace.TraceGraphSeq, int64(x.number))
	w.Int(memtrace.TraceOpSeq, int64(a.node))
	w.Text(memtrace.TraceTimeSource, source.String())
	w.Int(memtrace.TraceCtx, int64(x.ctx))
	w.Text(memtrace.TraceGGMLOp, a.name)
	w.Int(memtrace.TraceOperand, int64(a.number))
	w.Int(memtrace.TraceCount, 1)
	return w.EndRow()
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
func (r *Recorder) about() [][2]string {
	text, err := json.Marshal(r.doubts)
	if err != nil {
		return nil
	}
	return [][2]string{{memtrace.LedgerKey, string(text)}}
}
