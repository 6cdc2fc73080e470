//go:build linux

package session

import (
	"math"
	"sort"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/runner/sampling"
)

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
// last says that there comes none.
func (t *timeline) moment(ns int64, last bool) sampling.Moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := sampling.NoMoment
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
	m.Phase, m.Known = t.between(next, last)
	return m
}

// between is the phase in front of a graph.
func (t *timeline) between(next int, last bool) (memtrace.Phase, bool) {
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
func (s *span) moment() sampling.Moment {
	m := sampling.Moment{Known: true, Phase: memtrace.Generation, Exec: int64(s.exec), Token: -1, Ctx: int64(s.ctx), Seq: int64(s.seq), Step: s.step}
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
func common(a, b sampling.Moment) sampling.Moment {
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
	return sampling.Moment{
		Step:  step,
		Phase: a.Phase, Known: a.Known && b.Known && a.Phase == b.Phase, Exec: same(a.Exec, b.Exec), Token: same(a.Token, b.Token), Ctx: same(a.Ctx, b.Ctx),
		Seq: same(a.Seq, b.Seq),
	}
}
