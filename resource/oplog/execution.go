package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: no allocation per execution in steady state.

// execution is one that is recorded, with what is worked out of it.
type execution struct {
	*ggmlhooks.Execution
	level   resource.Level
	plan    *plan
	timed   bool
	times   []ggmlhooks.NodeTime
	done    int64 // when its scheduler was synchronised behind it; 0 = not known
	masks   []maskPairs
	found   []expertBytes
	ranges  []interval
	spans   []span
	looking []int64
}

// expertBytes are the bytes of a node that became known by the experts that were chosen.
type expertBytes struct {
	node          int
	read, written int64
}

// begin makes it that of an execution, in its old memory.
func (x *execution) begin(of *ggmlhooks.Execution, p *plan, level resource.Level) {
	*x = execution{
		Execution: of, level: level, plan: p, masks: x.masks[:0], found: x.found[:0], ranges: x.ranges[:0], spans: x.spans[:0], looking: x.looking[:0],
	}
	if level != resource.Minimal && level != resource.Off {
		x.timed, x.times = of.Timed, of.Times.Nodes
	}
	if !x.early(of.SyncNS) {
		x.done = of.DoneNS
	}
	for i := range of.Inputs {
		x.mask(&of.Inputs[i])
	}
}

// failed reports whether it was given up: how much of it was computed is not known.
func (x *execution) failed() bool { return x.End.Status != 0 }

// duration is how long ggml computed; false where that is not known.
func (x *execution) duration() (int64, bool) {
	end, begin := x.End.MonoNS, x.End.BeginNS
	if x.End.Async {
		end = x.done
	}
	if begin == 0 || end < begin {
		return 0, false
	}
	return end - begin, true
}

// finish is when it was done, as far as that is known.
func (x *execution) finish() int64 { return max(x.End.MonoNS, x.UntilNS) }

// timeSource is what its duration is the time of.
func (x *execution) timeSource() resource.TimeSource {
	if x.End.Async && x.done != 0 {
		return resource.TimeSync
	}
	return resource.TimeGraph
}

// work is what nodes from first to last did, with what the chosen experts and the masks say of them.
func (x *execution) work(first, last int) work {
	w := x.plan.sums[last+1].minus(x.plan.sums[first])
	for _, e := range x.found {
		if e.node >= first && e.node <= last {
			w.noBytes--
			w.read += e.read
			w.written += e.written
		}
	}
	x.unmask(&w, first, last)
	return w
}

// interval is the nodes between two timed ones, the second included.
type interval struct {
	first, last int   // computed nodes
	run         int   // that all of them are in; -1: several
	start       int64 // monotonic
	ns          int64 // -1 = not measured
	op          bool  // one op, behind one that was timed
}

// span is the time of a run of nodes.
type span struct {
	start, end int64
	ns         int64 // sum of its intervals; -1 = not all were measured, or not by themselves
	looks      int
	shared     bool // an interval has nodes of it and of another run
}

// measure makes intervals of the times of nodes, and spans of runs of them. It reports false where nothing was timed.
func (x *execution) measure() bool {
	p := x.plan
	if !x.timed || len(x.times) == 0 || len(p.runs) == 0 {
		return false
	}
	before, left := -1, int64(0)
	for _, t := range x.times {
		node := int(t.Node)
		switch count := p.sums[node+1].nodes - p.sums[before+1].nodes; {
		case count == 0:
			x.looking = append(x.looking, t.DoneNS-left)
		default:
			x.addInterval(before+1, node, x.Times.BeginNS+left, t.DoneNS-left, count == 1 && before >= 0)
		}
		before, left = node, t.LeftNS
	}
	if last := len(p.nodes) - 1; p.sums[last+1].nodes > p.sums[before+1].nodes {
		x.addInterval(before+1, last, x.Times.BeginNS+left, -1, false)
	}
	x.gather()
	return true
}

// addInterval adds the computed ones of nodes first to last.
func (x *execution) addInterval(first, last int, start, ns int64, op bool) {
	p := x.plan
	for p.nodes[first].run < 0 {
		first++
	}
	for p.nodes[last].run < 0 {
		last--
	}
	run := p.nodes[first].run
	if p.nodes[last].run != run {
		run = -1
	}
	x.ranges = append(x.ranges, interval{first, last, run, start, ns, op})
}

// gather sums intervals by runs. A run that shares an interval with others has no time of its own.
func (x *execution) gather() {
	x.spans = append(x.spans[:0], make([]span, len(x.plan.runs))...)
	for _, in := range x.ranges {
		if in.run < 0 {
			for r := x.plan.nodes[in.first].run; r <= x.plan.nodes[in.last].run; r++ {
				s := &x.spans[r]
				if s.start == 0 {
					s.start = in.start
				}
				s.ns, s.shared = -1, true
			}
			continue
		}
		s := &x.spans[in.run]
		if s.start == 0 {
			s.start = in.start
		}
		if in.ns < 0 || s.ns < 0 {
			s.ns = -1
			continue
		}
		s.ns += in.ns
		s.end = in.start + in.ns
		s.looks++
	}
}

// lookingPrice is the median time of the looks that saw nothing computed, 0 = there were none.
func (x *execution) lookingPrice() int64 {
	n := len(x.looking)
	if n == 0 {
		return 0
	}
	for i := 1; i < n; i++ { // few
		for j := i; j > 0 && x.looking[j] < x.looking[j-1]; j-- {
			x.looking[j], x.looking[j-1] = x.looking[j-1], x.looking[j]
		}
	}
	return x.looking[n/2]
}

// rowPhases counts the rows by their own phase: a batch may have rows of both.
func (x *execution) rowPhases() (prefill, decode int64) {
	for i := range x.Rows {
		if x.Rows[i].Phase == ggmlhooks.PhaseDecode {
			decode++
		}
	}
	return int64(len(x.Rows)) - decode, decode
}

// seq is a row's first sequence; false where it is not known.
func seq(row *ggmlhooks.Row) (int32, bool) {
	if len(row.Seqs) == 0 {
		return 0, false
	}
	return row.Seqs[0], true
}
