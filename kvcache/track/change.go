package track

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// held is what is not reported yet, because it may turn out to be a set-up that is thrown away.
type held struct {
	on     bool
	before *totals // of the recorder, when holding began
	rows   []lifeRow
	ops    []kvcache.Operation
}

// partialState is llama.h's flag of a state that holds only what cannot be cut back otherwise: recurrent states,
// windows.
const partialState = 1

// SeqChange takes in what the program did to sequences.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(c.Ctx)
	r.saw(x, c.MonoNS)
	if c.Kind == ggmlhooks.SeqRestore && len(x.caches) == 0 {
		x.unseen = true
	}
	for _, t := range x.caches {
		change(t, c)
		r.report(x, t, c.MonoNS, 0, nil)
	}
	switch c.Kind {
	case ggmlhooks.SeqCopy:
		if ns, ok := x.touched[c.Seq]; ok {
			x.touched[c.To] = ns
		}
	case ggmlhooks.SeqRestore:
		delete(x.touched, c.Seq)
	}
	return r.failed()
}

func change(t *tracked, c *ggmlhooks.SeqChange) {
	switch c.Kind {
	case ggmlhooks.SeqRemove:
		t.program.Remove(c.Seq, c.First, c.End, c.MonoNS)
	case ggmlhooks.SeqCopy:
		t.program.Copy(c.Seq, c.To, c.First, c.End, c.MonoNS)
	case ggmlhooks.SeqKeep:
		t.Keep(c.Seq, c.MonoNS)
	case ggmlhooks.SeqAdd:
		if c.Value != 0 {
			t.Move(c.Seq, c.First, c.End, func(pos int32) int32 { return pos + c.Value }, c.MonoNS)
		}
	case ggmlhooks.SeqDivide:
		if c.Value > 1 {
			t.Move(c.Seq, c.First, c.End, func(pos int32) int32 { return pos / c.Value }, c.MonoNS)
		}
	case ggmlhooks.SeqRestore:
		if c.Value&partialState == 0 || t.Kind != kvcache.Base {
			t.Restore(c.Seq, c.MonoNS)
		}
	}
}

// Resolve decides what the executions of a context were that may have been a set-up. Of a set-up nothing is kept.
func (r *Recorder) Resolve(e ggmlhooks.Resolve) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(e.Ctx)
	if !x.held.on {
		return nil
	}
	if !e.Discarded {
		r.settle(x)
		return r.failed()
	}
	for _, t := range x.caches {
		t.Forget()
	}
	clear(x.requests)
	clear(x.touched)
	if x.held.before != nil {
		last := r.total.lastNS
		r.total = *x.held.before
		r.total.lastNS = last
	}
	x.held = held{}
	return r.failed()
}

// settle reports what was held back: it is the run.
func (r *Recorder) settle(x *context) {
	h := x.held
	x.held = held{}
	for i := range h.rows {
		r.write(h.rows[i])
	}
	for i := range h.ops {
		r.operation(&h.ops[i])
	}
}

// report reports what happened to the cells of a cache since the last call. times is how often the execution wrote
// each part; nil: it was the program.
func (r *Recorder) report(x *context, t *tracked, ns int64, exec uint64, times []int64) {
	for _, c := range t.TakeChanges() {
		if r.o.Operation == nil {
			continue
		}
		op := kvcache.Operation{Change: c, Ctx: x.number, Cache: t.Kind, MonoNS: ns, Exec: exec, Layers: r.bytes(t, &c, times)}
		if q := x.requests[c.Seq]; q != nil && !q.unknown {
			op.Reused, op.Needed = q.reused, q.needed
		}
		if x.held.on {
			op.Layers = slices.Clone(op.Layers)
			x.held.ops = append(x.held.ops, op)
			continue
		}
		r.operation(&op)
	}
}

func (r *Recorder) operation(op *kvcache.Operation) {
	if r.o.Operation == nil {
		return
	}
	if err := r.o.Operation(op); err != nil && r.err == nil {
		r.err = err
	}
}

// bytes are those of the cells of a change in each layer, and those that were written of them.
func (r *Recorder) bytes(t *tracked, c *kvcache.Change, times []int64) []kvcache.LayerBytes {
	r.layers = r.layers[:0]
	for i, part := range t.Parts {
		holds, written := int64(c.Cells)*part.CellBytes, int64(0)
		if i < len(times) {
			written = int64(c.Written) * part.CellBytes * times[i]
		}
		at := slices.IndexFunc(r.layers, func(l kvcache.LayerBytes) bool { return l.Layer == part.Layer })
		if at < 0 {
			at = len(r.layers)
			r.layers = append(r.layers, kvcache.LayerBytes{Layer: part.Layer})
		}
		if part.Tensor == kvcache.K || part.Tensor == kvcache.R {
			r.layers[at].K += holds
			r.layers[at].KWritten += written
		} else {
			r.layers[at].V += holds
			r.layers[at].VWritten += written
		}
	}
	return r.layers
}

// ended makes rows of a life that ended.
func (r *Recorder) ended(x *context, t *tracked, life *kvcache.Life) {
	if life.Reason != kvcache.NotEvicted {
		if life.AllocNS != 0 {
			r.total.lifetime.Add(life.EndNS - life.AllocNS)
		}
		r.total.idle.Add(life.IdleNS())
	}
	if r.table == nil {
		return
	}
	for g, group := range t.Groups() {
		for _, part := range group {
			row := newLifeRow(x.number, t.Cache, life, part, &life.Touches[g])
			if x.held.on {
				x.held.rows = append(x.held.rows, row)
			} else {
				r.write(row)
			}
		}
	}
}

func (r *Recorder) write(row lifeRow) {
	if r.table == nil {
		return
	}
	if err := r.table.append(&row); err != nil && r.err == nil {
		r.err = err
	}
}

// Snapshot says how the caches are used now, and after [Recorder.Close] how they were used then. Any goroutine may
// call it.
func (r *Recorder) Snapshot() kvcache.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.last.Clone()
	}
	return r.snapshot()
}

func (r *Recorder) snapshot() kvcache.Snapshot {
	total := r.total.clone()
	s := kvcache.Snapshot{Reuse: total.reuse, Lifetime: total.lifetime, Idle: total.idle, Doubts: total.doubts, Freed: slices.Clone(r.freed)}
	if total.lastNS != 0 {
		s.UnixNS = total.lastNS + r.o.UnixOffset
	}
	for _, number := range r.contexts() {
		x := r.ctxs[number]
		for _, t := range x.caches {
			s.Caches = append(s.Caches, t.Gauge(number))
		}
	}
	return s
}

// contexts are the numbers of all contexts, in order.
func (r *Recorder) contexts() (numbers []uint32) {
	for number := range r.ctxs {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

func (t *totals) clone() totals {
	s := kvcache.Snapshot{Reuse: t.reuse, Lifetime: t.lifetime, Idle: t.idle}
	s = s.Clone()
	return totals{reuse: s.Reuse, lifetime: s.Lifetime, idle: s.Idle, doubts: t.doubts, lastNS: t.lastNS}
}

// Close ends watching: what is undecided was the run, lives that go on are censored, and the table is completed. It
// may be called twice.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	numbers := r.contexts()
	for _, number := range numbers {
		r.settle(r.ctxs[number])
	}
	r.last = r.snapshot() // before all lives are ended
	for _, number := range numbers {
		for _, t := range r.ctxs[number].caches {
			t.End(r.total.lastNS)
		}
	}
	if r.table == nil {
		return r.failed()
	}
	err := r.failed()
	if closing := r.table.close(&r.last); err == nil {
		err = closing
	}
	return err
}
