package filemap

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/llamatap/llamatap/resource"
)

// Bounds of memory: beyond them a line is written though something of it may follow.
const (
	maxLines = 4096
	maxHeld  = 64 // executions of which it is not decided whether they are set-up
)

// timeline is the lines in the order of time, and writes them.
type timeline struct {
	o       *recorderOptions
	waiting []*segment // by begin; the first is the oldest that is not written
	byExec  map[uint64]*segment
	end     int64 // of the newest execution that was written
	err     error
}

// segment is an execution or a phase, and what follows until the next begins.
type segment struct {
	kind       string
	graph      Graph
	end        int64 // 0: continues
	held       bool
	written    bool
	own, after sums
}

// begin adds an execution.
func (t *timeline) begin(g Graph) {
	s := &segment{kind: resource.WaitGraph, graph: g, held: g.Held}
	s.graph.Tokens = append([]resource.WaitToken(nil), g.Tokens[:min(len(g.Tokens), maxTokens)]...)
	if g.TokenCount > maxTokens {
		s.graph.Tokens = nil
	}
	last := t.waiting[len(t.waiting)-1]
	if last.kind == resource.WaitPhase && last.end == 0 {
		last.end = g.BeginNS
	}
	t.waiting = append(t.waiting, s)
	if last.graph.BeginNS > g.BeginNS {
		slices.SortStableFunc(t.waiting,
			func(a, b *segment) int { return cmp.Compare(a.graph.BeginNS, b.graph.BeginNS) })
	}
	t.byExec[g.Exec] = s
}

// finish ends an execution.
func (t *timeline) finish(exec uint64, endNS int64) {
	if s := t.byExec[exec]; s != nil && s.end == 0 {
		s.end = max(endNS, s.graph.BeginNS)
		if !s.held {
			delete(t.byExec, exec)
		}
	}
}

// decide releases a context's executions up to exec; phase, if any, is what they were.
func (t *timeline) decide(ctx uint32, exec uint64, phase string) {
	for _, s := range t.waiting {
		if s.held && s.graph.Ctx == ctx && s.graph.Exec <= exec {
			if s.held = false; phase != "" {
				s.graph.Phase = phase
			}
			if s.end != 0 {
				delete(t.byExec, s.graph.Exec)
			}
		}
	}
}

// find returns the line that counts what happened at a time; none where it is written.
func (t *timeline) find(at int64) (*segment, *sums) {
	i := len(t.waiting) - 1
	for i > 0 && t.waiting[i].graph.BeginNS > at {
		i--
	}
	for j := i; j >= max(0, i-8); j-- { // executions of several contexts may overlap
		if s := t.waiting[j]; s.graph.BeginNS <= at && (s.end == 0 || at <= s.end) {
			if s.written {
				return nil, nil
			}
			return s, &s.own
		}
	}
	if s := t.waiting[i]; s.graph.BeginNS <= at {
		return s, &s.after
	} else if !s.written && i == 0 && s.kind != resource.WaitGraph {
		return s, &s.own // before the recording was said to begin
	}
	return nil, nil
}

// write writes the lines that are complete up to a time.
func (t *timeline) write(upto int64) {
	for {
		s, forced := t.waiting[0], len(t.waiting) > maxLines
		if !s.written {
			if !forced && (s.end == 0 || s.end > upto || s.held && !t.crowded()) {
				return
			}
			t.line(s)
		}
		if len(t.waiting) == 1 || !forced && t.waiting[1].graph.BeginNS > upto {
			return
		}
		t.writeGap(s, t.waiting[1].graph.BeginNS)
		t.waiting = append(t.waiting[:0], t.waiting[1:]...)
	}
}

// drain writes all lines. What has not ended ends at a time.
func (t *timeline) drain(endNS int64) {
	for _, s := range t.waiting {
		if s.held = false; s.end == 0 {
			s.end = endNS
		}
	}
	t.write(math.MaxInt64)
	t.writeGap(t.waiting[0], endNS)
}

// crowded reports whether too many lines are held until it is decided whether they were set-up.
func (t *timeline) crowded() bool {
	n := 0
	for _, s := range t.waiting {
		if s.held {
			n++
		}
	}
	return n > maxHeld
}

// line writes a segment's own line.
func (t *timeline) line(s *segment) {
	g := &s.graph
	l := resource.WaitLine{Kind: s.kind, Phase: g.Phase, BeginNS: g.BeginNS, EndNS: s.end}
	if s.kind == resource.WaitGraph {
		l.Ctx, l.Exec, l.TokenCount, l.Tokens = &g.Ctx, &g.Exec, g.TokenCount, g.Tokens
		if g.TokenFirst >= 0 {
			l.TokenFirst = &g.TokenFirst
		}
	}
	l.FirstFaults = s.order(t.o.Files)
	t.out(&l, &s.own, t.o.Top)
	s.written, s.own = true, sums{}
	t.end = max(t.end, s.end)
	delete(t.byExec, g.Exec)
}

// writeGap writes what came after a segment, if anything did.
func (t *timeline) writeGap(s *segment, until int64) {
	if s.after.empty() {
		return
	}
	l := resource.WaitLine{Kind: resource.WaitBetween, BeginNS: max(s.end, t.end), EndNS: until}
	if l.EndNS < l.BeginNS {
		l.BeginNS = l.EndNS
	}
	if s.kind == resource.WaitGraph {
		l.Ctx, l.Exec = &s.graph.Ctx, &s.graph.Exec
	}
	t.out(&l, &s.after, t.o.Top)
	s.after = sums{}
}

// out writes a line with its sums and the top places.
func (t *timeline) out(l *resource.WaitLine, s *sums, top int) {
	l.DurationNS = l.EndNS - l.BeginNS
	s.fill(l, t.o.Files, top)
	if err := t.o.Line(l); err != nil && t.err == nil {
		t.err = err
	}
}

// order compares the first faults of an execution with the order of its graph's weights; nil where none of them was
// one's.
func (s *segment) order(files *Files) *resource.WaitOrder {
	if len(s.own.first) == 0 || len(s.graph.Weights) == 0 {
		return nil
	}
	rank := make(map[string]int, len(s.graph.Weights))
	for i, name := range s.graph.Weights {
		rank[name] = i
	}
	first := slices.Clone(s.own.first)
	slices.SortStableFunc(first, func(a, b firstFault) int { return cmp.Compare(a.begin, b.begin) })
	var ranks []int
	for _, f := range first {
		if i, ok := rank[files.Place(f.place).Tensor]; ok {
			ranks = append(ranks, i)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	o := &resource.WaitOrder{Tensors: len(ranks), Known: len(s.graph.Weights), InOrder: rising(ranks)}
	o.Ordered = o.InOrder == o.Tensors
	return o
}

// rising is the length of the longest rising subsequence.
func rising(ranks []int) int {
	var ends []int // the smallest end of a subsequence of each length
	for _, v := range ranks {
		i := sort.SearchInts(ends, v)
		if i == len(ends) {
			ends = append(ends, v)
		} else {
			ends[i] = v
		}
	}
	return len(ends)
}
