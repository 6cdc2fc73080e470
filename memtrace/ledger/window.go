package ledger

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// sums are the accesses of the window that is open, by what they have in common. What is summed up once is kept,
// and begins anew.
type sums struct {
	of    map[sumKey]*sum
	order []*sum // in which they were needed first
	begin int64  // of the window, Unix time
	some  bool
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

// sumUp adds an execution to its window: that in which it began, or the newest if that is behind it.
func (r *Recorder) sumUp(x *execution) error {
	length := int64(r.o.Window)
	if begin := (x.begin + r.o.UnixOffset) / length * length; !r.sums.some || begin > r.sums.begin {
		if err := r.flush(); err != nil {
			return err
		}
		r.sums.begin, r.sums.some = begin, true
	}
	return r.visit(x, func(a *access) error { return r.sumOf(x, a) })
}

// sumOf adds an access.
func (r *Recorder) sumOf(x *execution, a *access) error {
	r.doubts.Accesses++
	key := sumKey{region: a.region, op: a.op, phase: x.phase, step: x.stepOf(a.token), open: x.open, ctx: x.ctx, flags: a.flags}
	if a.region == nil {
		key.buffer = a.buffer
	} else {
		key.region = a.region.Root()
	}
	s := a.sum
	if s == nil || s.sumKey != key {
		if s = r.sums.of[key]; s == nil {
			if r.sums.of == nil {
				r.sums.of = map[sumKey]*sum{}
			}
			s = &sum{sumKey: key}
			r.sums.of[key] = s
			r.sums.order = append(r.sums.order, s)
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
func (r *Recorder) flush() error {
	if !r.sums.some {
		return nil
	}
	r.sums.some = false
	for _, s := range r.sums.order {
		if s.accesses == 0 {
			continue
		}
		if err := r.sum(s); err != nil {
			return err
		}
		s.accesses, s.bytes = 0, 0
	}
	return nil
}

// sum writes what is summed up.
func (r *Recorder) sum(s *sum) error {
	w := r.out
	w.Int(memtrace.TraceTime, r.sums.begin)
	if !s.open {
		w.Text(memtrace.TracePhase, s.phase.String())
	}
	r.step(s.step, 1)
	w.Text(memtrace.TraceOp, s.op.String())
	if s.flags&memtrace.TraceUnknown == 0 {
		w.Int(memtrace.TraceSize, int64(s.bytes))
	}
	b := s.buffer
	if s.region != nil {
		b = r.o.Map.Buffer(s.region.Buffer)
		r.known(memtrace.TraceLayer, int32(s.region.Layer))
	}
	switch {
	case b == nil:
	case s.region == nil || s.region.Type == memtrace.Activation: // it lies elsewhere in another graph
		w.Text(memtrace.TraceDevice, b.Device)
		w.Int(memtrace.TraceBuffer, int64(b.ID))
	default:
		r.place(b, s.region.Offset)
	}
	r.region(s.region)
	w.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	w.Text(memtrace.TraceTimeSource, memtrace.TimeOfGraph.String())
	w.Int(memtrace.TraceCtx, int64(s.ctx))
	w.Int(memtrace.TraceFlags, int64(s.flags))
	w.Int(memtrace.TraceCount, s.accesses)
	w.Int(memtrace.TraceWindow, int64(r.o.Window))
	return w.EndRow()
}
