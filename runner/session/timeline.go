//go:build linux

package session

import (
	"math"
	"sort"
	"sync"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/resource"
)

// timeline remembers which graphs were computed of late, for events that are placed by their time. It may be used by
// several goroutines.
type timeline struct {
	mu     sync.Mutex
	graphs []span // by begin
	any    bool   // there was one
	// trimmed is true if there were graphs before the first of those that are remembered.
	trimmed bool
}

// Begin begins a graph.
func (t *timeline) Begin(x *ggmlhooks.Execution) error {
	s := span{ctx: x.Ctx, exec: x.Number, phase: x.Phase, first: -1, last: -1, begin: x.MonoNS, end: math.MaxInt64,
		undecided: x.Undecided}
	for i := range x.Rows {
		if i == 0 || x.Rows[i].Index < s.first {
			s.first = x.Rows[i].Index
		}
		s.last = max(s.last, x.Rows[i].Index)
	}
	if x.Phase == ggmlhooks.PhaseSetup { // whose rows are no tokens of the run
		s.first, s.last = -1, -1
	}
	s.seq, s.step = onlySequence(x.Rows), ggmlhooks.OnePhase(x.Rows)
	t.add(s)
	return nil
}

// onlySequence is the sequence that all rows belong to, and none of them to another one; -1.
func onlySequence(rows []ggmlhooks.Row) int32 {
	for i := range rows {
		if len(rows[i].Seqs) != 1 || rows[i].Seqs[0] != rows[0].Seqs[0] {
			return -1
		}
	}
	if len(rows) == 0 {
		return -1
	}
	return rows[0].Seqs[0]
}

// End ends a graph.
func (t *timeline) End(x *ggmlhooks.Execution) error {
	t.change(func(s *span) {
		if s.exec == x.Number {
			s.end = x.End.MonoNS
		}
	})
	return nil
}

// Resolve decides what a context's graphs up to an execution were.
func (t *timeline) Resolve(r ggmlhooks.Resolve) error {
	t.change(func(s *span) {
		if s.ctx == r.Ctx && s.exec <= r.Exec && s.undecided {
			s.undecided = false
			if r.Discarded {
				s.phase, s.first, s.last = ggmlhooks.PhaseSetup, -1, -1
			}
		}
	})
	return nil
}

// span is a graph as the timeline remembers it.
type span struct {
	ctx         uint32
	exec        uint64
	phase       ggmlhooks.Phase
	step        ggmlhooks.Phase // of all its tokens; unknown: of several, or it has none
	first, last int64           // token indices; -1: it has none
	seq         int32           // of all its tokens; -1: of several, or not known
	begin, end  int64           // CLOCK_MONOTONIC, ns; end is math.MaxInt64 while it is computed
	undecided   bool
}

// remembered is how many graphs a timeline keeps, recent how many of them may still change.
const (
	remembered = 1 << 14
	recent     = 256
)

func (t *timeline) add(s span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.any = true
	if len(t.graphs) == remembered {
		t.graphs, t.trimmed = append(t.graphs[:0], t.graphs[remembered/2:]...), true
	}
	t.graphs = append(t.graphs, s)
}

// change calls f for the graphs that may still change.
func (t *timeline) change(f func(*span)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := max(0, len(t.graphs)-recent); i < len(t.graphs); i++ {
		f(&t.graphs[i])
	}
}

// computed is how much of a time graphs were computed in. It is not known where those of its beginning are no
// longer remembered.
func (t *timeline) computed(from, to int64) resource.GraphTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := resource.GraphTime{Known: !t.trimmed || t.graphs[0].begin <= from}
	for _, s := range t.graphs {
		begin, end := max(s.begin, from), min(s.end, to)
		c.NS += max(0, end-begin)
		from = max(from, end) // those of several contexts may overlap
	}
	return c
}

// within says what was computed between two times: the phase that took most of it, and the tokens of that phase, -1
// where it has none. The phase is "load" before the first graph, and "between" where none was computed.
func (t *timeline) within(from, to int64) (phase string, first, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.any || t.graphs[0].begin >= to {
		return "load", -1, -1
	}
	took := map[ggmlhooks.Phase]int64{}
	for _, s := range t.graphs {
		if s.end > from && s.begin < to {
			took[s.phase] += min(s.end, to) - max(s.begin, from)
		}
	}
	if len(took) == 0 {
		return "between", -1, -1
	}
	most := ggmlhooks.PhaseUnknown
	for p, ns := range took {
		if _, known := took[most]; !known || ns > took[most] || ns == took[most] && p > most {
			most = p
		}
	}
	first, last = -1, -1
	for _, s := range t.graphs {
		if s.end > from && s.begin < to && s.phase == most && s.first >= 0 {
			if first < 0 || s.first < first {
				first = s.first
			}
			last = max(last, s.last)
		}
	}
	return most.String(), first, last
}

// decided is the time up to which it is known what graphs were computed, whether they are the run, and what came
// behind them.
func (t *timeline) decided() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	upto := int64(math.MinInt64)
	for i := max(0, len(t.graphs)-recent); i < len(t.graphs); i++ {
		s := &t.graphs[i]
		if s.end == math.MaxInt64 || s.undecided {
			return s.begin
		}
		upto = max(upto, s.end)
	}
	return upto
}

// neighbours is how many graphs before a time may have been computed then: those of several contexts.
const neighbours = 16

// moment says what was computed at a time. Of an access between two graphs that is what lies before the next one;
// last: no graph follows.
func (t *timeline) moment(ns int64, last bool) sample.Moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := sample.NoMoment
	next := sort.Search(len(t.graphs), func(i int) bool { return t.graphs[i].begin > ns })
	found := 0
	for i := next - 1; i >= max(0, next-neighbours); i-- {
		s := &t.graphs[i]
		if s.end <= ns {
			continue
		}
		if found++; found == 1 {
			m = s.moment()
		} else { // graphs of several contexts at once: what they have in common
			m = common(m, s.moment())
		}
	}
	if found > 0 {
		return m
	}
	m.Phase, m.Known = t.phaseBefore(next, last)
	return m
}

// phaseBefore returns the phase before a graph.
func (t *timeline) phaseBefore(next int, last bool) (memtrace.Phase, bool) {
	switch {
	case next == 0:
		return memtrace.WeightLoad, !t.trimmed
	case next == len(t.graphs) && last:
		return memtrace.Teardown, true
	case t.graphs[next-1].phase == ggmlhooks.PhaseSetup:
		return memtrace.Setup, true
	}
	return memtrace.Generation, true
}

// moment is what is known of whatever happens while a graph is computed.
func (s *span) moment() sample.Moment {
	m := sample.Moment{Known: true, Phase: memtrace.Generation, Exec: int64(s.exec), Token: -1, Ctx: int64(s.ctx),
		Seq: int64(s.seq), Step: s.step}
	if s.first == s.last {
		m.Token = s.first // of several it is not known which
	}
	switch s.phase {
	case ggmlhooks.PhaseSetup:
		m.Phase, m.Step = memtrace.Setup, ggmlhooks.PhaseUnknown
	case ggmlhooks.PhaseMaintenance:
		m.Phase, m.Step = memtrace.Maintenance, ggmlhooks.PhaseUnknown
	case ggmlhooks.PhaseUnknown:
		m.Known, m.Step = false, ggmlhooks.PhaseUnknown
	}
	return m
}

// common is what two moments have in common.
func common(a, b sample.Moment) sample.Moment {
	same := func(x, y int64) int64 {
		if x == y {
			return x
		}
		return -1
	}
	step := a.Step
	if b.Step != step {
		step = ggmlhooks.PhaseUnknown
	}
	return sample.Moment{
		Step:  step,
		Phase: a.Phase, Known: a.Known && b.Known && a.Phase == b.Phase,
		Exec: same(a.Exec, b.Exec), Token: same(a.Token, b.Token), Ctx: same(a.Ctx, b.Ctx),
		Seq: same(a.Seq, b.Seq),
	}
}
