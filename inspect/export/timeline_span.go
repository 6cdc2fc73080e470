package export

import (
	"cmp"
	"slices"
)

// Depths of spans, outermost first.
const (
	depthGraph = iota
	depthLayer
	depthComponent
	depthOp
)

var categories = [...]string{"graph", "layer", "component", "op"}

// span is a stretch of an execution. Times are monotonic, in nanoseconds.
type span struct {
	start, end  int64
	depth       int
	name        string // of a graph its phase and tokens, of an op its operation
	tensor      string // that an op computes
	component   string
	layer       int   // -1: none
	flops, read int64 // -1: not known
	written     int64 // -1: not known
}

// precedes reports whether a span has ended where another one begins that follows it in the order of nest.
func (s *span) precedes(next *span) bool { return s.depth >= next.depth || s.end <= next.start }

// execution is a graph with its parts.
type execution struct {
	ctx    uint32
	number uint64
	phase  string
	tokens int
	timed  bool     // inside
	inputs []uint64 // flows of the tokens that it takes as input
	spans  []span   // the graph first; each within the one of less depth before it
}

// nest orders spans as they contain each other, and clips what reaches beyond what contains it: clocks are read
// between spans, so that their ends can differ by some nanoseconds.
func nest(spans []span) []span {
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.depth, b.depth), cmp.Compare(b.end, a.end))
	})
	var open []int
	kept := spans[:0]
	for _, s := range spans {
		for len(open) > 0 {
			top := &kept[open[len(open)-1]]
			if top.depth < s.depth && top.end > s.start {
				s.end = min(s.end, top.end)
				break
			}
			if top.depth >= s.depth {
				s.start = max(s.start, min(top.end, s.end))
			}
			open = open[:len(open)-1]
		}
		if s.end < s.start {
			continue
		}
		kept = append(kept, s)
		open = append(open, len(kept)-1)
	}
	return kept
}

// walk calls open where each span begins and shut where it ends, in the order of time: parts within what contains them.
func (x *execution) walk(open, shut func(*span)) {
	var stack []*span
	pop := func() {
		shut(stack[len(stack)-1])
		stack = stack[:len(stack)-1]
	}
	for i := range x.spans {
		for len(stack) > 0 && stack[len(stack)-1].precedes(&x.spans[i]) {
			pop()
		}
		open(&x.spans[i])
		stack = append(stack, &x.spans[i])
	}
	for len(stack) > 0 {
		pop()
	}
}

// self calls each with the time of each span that is not in one of its parts.
func (x *execution) self(each func(stack []*span, ns int64)) {
	var stack []*span
	var inside []int64
	x.walk(func(s *span) {
		stack, inside = append(stack, s), append(inside, 0)
	}, func(s *span) {
		last := len(stack) - 1
		each(stack, max(0, s.end-s.start-inside[last]))
		if last > 0 {
			inside[last-1] += s.end - s.start
		}
		stack, inside = stack[:last], inside[:last]
	})
}
