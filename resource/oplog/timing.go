package oplog

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// timing is what the times of an execution's nodes say.
type timing struct {
	times   []ggmlhooks.NodeTime
	timed   bool       // they were asked for
	ranges  []interval // between timed nodes, in order
	spans   []span     // of each run of nodes; empty where nothing was timed
	looking []int64    // times of looks that saw nothing computed
}

// interval is the nodes between two timed ones, the second included.
type interval struct {
	first, last int   // computed nodes
	run         int   // that all of them are in; -1: several
	start       int64 // monotonic
	ns          int64 // -1 = not measured
	op          bool  // one op, after one that was timed
}

// span is the time of a run of nodes.
type span struct {
	start, end int64
	ns         int64 // sum of its intervals; -1 = not all were measured, or not by themselves
	looks      int
	shared     bool // an interval has nodes of it and of another run
}

// begin makes intervals of the times of nodes, and spans of runs of them.
func (t *timing) begin(x *ggmlhooks.Execution, p *plan, level resource.Level) {
	*t = timing{ranges: t.ranges[:0], spans: t.spans[:0], looking: t.looking[:0]}
	if level == resource.Minimal || level == resource.Off {
		return
	}
	t.timed, t.times = x.Timed, x.Times.Nodes
	if !t.timed || len(t.times) == 0 || len(p.runs) == 0 {
		return
	}
	before, left := -1, int64(0)
	for _, node := range t.times {
		last := int(node.Node)
		switch count := p.sums[last+1].nodes - p.sums[before+1].nodes; {
		case count == 0:
			t.looking = append(t.looking, node.DoneNS-left)
		default:
			t.add(p, before+1, last, x.Times.BeginNS+left, node.DoneNS-left, count == 1 && before >= 0)
		}
		before, left = last, node.LeftNS
	}
	if last := len(p.nodes) - 1; p.sums[last+1].nodes > p.sums[before+1].nodes {
		t.add(p, before+1, last, x.Times.BeginNS+left, -1, false)
	}
	t.gather(p)
}

// add adds the computed ones of nodes first to last.
func (t *timing) add(p *plan, first, last int, start, ns int64, op bool) {
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
	t.ranges = append(t.ranges, interval{first, last, run, start, ns, op})
}

// gather sums intervals by runs. A run that shares an interval with others has no time of its own.
func (t *timing) gather(p *plan) {
	t.spans = append(t.spans, make([]span, len(p.runs))...)
	for _, in := range t.ranges {
		if in.run < 0 {
			for r := p.nodes[in.first].run; r <= p.nodes[in.last].run; r++ {
				s := &t.spans[r]
				if s.start == 0 {
					s.start = in.start
				}
				s.ns, s.shared = -1, true
			}
			continue
		}
		s := &t.spans[in.run]
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

// price is the median time of the looks that saw nothing computed, 0 = there were none.
func (t *timing) price() int64 {
	if len(t.looking) == 0 {
		return 0
	}
	slices.Sort(t.looking)
	return t.looking[len(t.looking)/2]
}
