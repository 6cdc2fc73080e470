package ledger

import "github.com/llamatap/llamatap/memtrace"

// Hot path: per segment and column one copy, and no allocation in steady state.

// segment is accesses of neighbouring operands that are the same in every execution of a graph, by columns.
type segment struct {
	nodes   []int32 // by row
	columns []column
}

// column is one that is not null in all rows of a segment.
type column struct {
	number int
	values []int64
	valid  []bool // nil: all are
	alike  bool   // all have the first value
}

// rows writes every access of an execution as a row of its own.
type rows struct {
	out *output
	visitor
	ns, sources []int64 // of the rows of a segment, used again
}

// step is what is written next of an execution: a segment, or an item that is another each time.
type step struct {
	segment *segment
	item    int
}

// steps cuts a plan into segments. Codes of texts are those of the output.
func (r *rows) steps(p *plan) (steps []step) {
	for i := 0; i < len(p.items); i++ {
		if p.items[i].kind != itemFixed {
			steps = append(steps, step{item: i})
			continue
		}
		first := i
		for i+1 < len(p.items) && p.items[i+1].kind == itemFixed {
			i++
		}
		steps = append(steps, step{segment: r.segment(p.items[first : i+1])})
	}
	return steps
}

// segment makes columns of items.
func (r *rows) segment(items []item) *segment {
	s := &segment{}
	of := map[int]*column{}
	var order []int
	for i := range items {
		it := &items[i]
		for _, bytes := range it.spans {
			row := len(s.nodes)
			s.nodes = append(s.nodes, it.node)
			r.out.lasting(&access{operand: &it.operand, span: bytes, flags: it.flags}, func(number int, v int64) {
				c := of[number]
				if c == nil {
					c = &column{number: number}
					of[number] = c
					order = append(order, number)
				}
				c.pad(row)
				c.values, c.valid = append(c.values, v), append(c.valid, true)
			})
		}
	}
	for _, number := range order {
		c := of[number]
		c.pad(len(s.nodes))
		c.shrink()
		s.columns = append(s.columns, *c)
	}
	return s
}

// pad makes rows up to n null that have no value yet.
func (c *column) pad(n int) {
	for len(c.values) < n {
		c.values, c.valid = append(c.values, 0), append(c.valid, false)
	}
}

// shrink finds out whether all rows have a value, and whether it is one.
func (c *column) shrink() {
	all := true
	c.alike = true
	for i := range c.values {
		all = all && c.valid[i]
		c.alike = c.alike && c.valid[i] && c.values[i] == c.values[0]
	}
	if all {
		c.valid = nil
	}
}

// execution writes the accesses of an execution.
func (r *rows) execution(x *execution) error {
	if x.plan.steps == nil {
		x.plan.steps = r.steps(x.plan)
	}
	for i := range x.plan.steps {
		s := &x.plan.steps[i]
		var err error
		if s.segment != nil {
			err = r.segmentRows(x, s.segment)
		} else {
			err = r.visit(x, &x.plan.items[s.item])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// segmentRows writes the rows of a segment.
func (r *rows) segmentRows(x *execution, s *segment) error {
	w, n := r.out, len(s.nodes)
	for i := range s.columns {
		switch c := &s.columns[i]; {
		case c.alike:
			w.Fill(c.number, c.values[0], n)
		case c.valid == nil:
			w.Extend(c.number, c.values)
		default:
			w.ExtendSome(c.number, c.values, c.valid)
		}
	}
	if token := x.token(0); token != none {
		w.Fill(memtrace.TraceToken, int64(token), n)
	}
	if x.only != none {
		w.Fill(memtrace.TraceSeq, int64(x.only), n)
	}
	w.step(x.stepOf(none), n)
	r.common(x, n)
	if len(x.times) == 0 {
		w.Fill(memtrace.TraceTime, x.begin+w.offset, n)
		w.Fill(memtrace.TraceTimeSource, w.Code(memtrace.TraceTimeSource, memtrace.TimeOfGraph.String()), n)
	} else {
		r.ns, r.sources = r.ns[:0], r.sources[:0]
		for _, node := range s.nodes {
			ns, source := x.interval(node)
			r.ns = append(r.ns, ns+w.offset)
			r.sources = append(r.sources, w.Code(memtrace.TraceTimeSource, source.String()))
		}
		w.Extend(memtrace.TraceTime, r.ns)
		w.Extend(memtrace.TraceTimeSource, r.sources)
	}
	r.doubts.Accesses += int64(n)
	return w.EndRows(n)
}

// row writes an access whose bytes are different ones in each execution.
func (r *rows) row(x *execution, a *access) error {
	r.doubts.Accesses++
	w := r.out
	w.lasting(a, w.fill)
	ns, source := a.ns, memtrace.TimeOfCopy
	if a.node != none {
		ns, source = x.interval(a.node)
	}
	w.Int(memtrace.TraceTime, ns+w.offset)
	w.Text(memtrace.TraceTimeSource, source.String())
	w.setIfKnown(memtrace.TraceToken, a.token)
	w.setIfKnown(memtrace.TraceSeq, a.seq)
	w.setIfKnown(memtrace.TraceKVBlock, a.block)
	w.step(x.stepOf(a.token), 1)
	r.common(x, 1)
	return w.EndRow()
}

// common sets what is the same in n rows of an execution.
func (r *rows) common(x *execution, n int) {
	w := r.out
	if !x.open {
		w.Fill(memtrace.TracePhase, w.Code(memtrace.TracePhase, x.phase.String()), n)
	}
	w.Fill(memtrace.TraceCollector, w.Code(memtrace.TraceCollector, memtrace.CollectorGraph.String()), n)
	w.Fill(memtrace.TraceGraphSeq, int64(x.number), n)
	w.Fill(memtrace.TraceCtx, int64(x.ctx), n)
	w.Fill(memtrace.TraceCount, 1, n)
}
