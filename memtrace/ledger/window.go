package ledger

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// windows writes what the accesses of a window of time have in common as one row. What is summed up once is kept, and
// begins anew.
type windows struct {
	out    *output
	m      *memtrace.RegionMap
	length int64 // in nanoseconds; 0: there are no windows
	visitor
	of    map[sumKey]*sum
	order []*sum // in which they were needed first
	begin int64  // of the window that is open, Unix time
	open  bool
}

type sumKey struct {
	region *memtrace.Region
	buffer *memtrace.Buffer // where there is no region
	op     memtrace.AccessOp
	phase  memtrace.Phase
	step   ggmlhooks.Phase
	open   bool // the phase is not known
	ctx    uint32
	flags  memtrace.TraceFlag
}

type sum struct {
	sumKey
	accesses int64
	bytes    uint64
}

// execution adds an execution to its window, with what was copied for it: that in which it began, or the newest if that
// is later.
func (w *windows) execution(x *execution, copies *copies) error {
	if begin := (x.begin + w.out.offset) / w.length * w.length; !w.open || begin > w.begin {
		if err := w.flush(); err != nil {
			return err
		}
		w.begin, w.open = begin, true
	}
	if err := copies.visit(x, w.add); err != nil {
		return err
	}
	for i := range x.plan.items {
		if err := w.visit(x, &x.plan.items[i]); err != nil {
			return err
		}
	}
	return nil
}

// add adds an access to its sum.
func (w *windows) add(x *execution, a *access) error {
	w.doubts.Accesses++
	key := sumKey{
		region: a.region, op: a.op, phase: x.phase, step: x.stepOf(a.token), open: x.open, ctx: x.ctx, flags: a.flags,
	}
	if a.region == nil {
		key.buffer = a.buffer
	} else {
		key.region = a.region.Root()
	}
	s := a.sum
	if s == nil || s.sumKey != key {
		if s = w.of[key]; s == nil {
			s = &sum{sumKey: key}
			w.of[key] = s
			w.order = append(w.order, s)
		}
		a.operand.sum = s
	}
	s.accesses++
	if a.flags&memtrace.TraceUnknown == 0 {
		s.bytes += a.size()
	}
	return nil
}

// flush writes the window that is open, and ends it.
func (w *windows) flush() error {
	if !w.open {
		return nil
	}
	w.open = false
	for _, s := range w.order {
		if s.accesses == 0 {
			continue
		}
		if err := w.row(s); err != nil {
			return err
		}
		s.accesses, s.bytes = 0, 0
	}
	return nil
}

// row writes a sum.
func (w *windows) row(s *sum) error {
	out := w.out
	out.Int(memtrace.TraceTime, w.begin)
	if !s.open {
		out.Text(memtrace.TracePhase, s.phase.String())
	}
	out.step(s.step, 1)
	out.Text(memtrace.TraceOp, s.op.String())
	if s.flags&memtrace.TraceUnknown == 0 {
		out.Int(memtrace.TraceSize, int64(s.bytes))
	}
	b := s.buffer
	if s.region != nil {
		b = w.m.Buffer(s.region.Buffer)
		out.setIfKnown(memtrace.TraceLayer, int32(s.region.Layer))
	}
	switch {
	case b == nil:
	case s.region == nil || s.region.Type == memtrace.Activation: // it lies elsewhere in another graph
		out.Text(memtrace.TraceDevice, b.Device)
		out.Int(memtrace.TraceBuffer, int64(b.ID))
	default:
		out.setPlace(b, s.region.Offset)
	}
	out.region(s.region)
	out.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	out.Text(memtrace.TraceTimeSource, memtrace.TimeOfGraph.String())
	out.Int(memtrace.TraceCtx, int64(s.ctx))
	out.Int(memtrace.TraceFlags, int64(s.flags))
	out.Int(memtrace.TraceCount, s.accesses)
	out.Int(memtrace.TraceWindow, w.length)
	return out.EndRow()
}
