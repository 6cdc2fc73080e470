//go:build linux

package session

import (
	"math"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample"
)

func TestMoments(t *testing.T) {
	var line timeline
	if line.decided() != math.MinInt64 {
		t.Error("something is decided of a run without graphs")
	}
	graph := func(exec uint64, ctx uint32, phase ggmlhooks.Phase, first, last int64, begin, end int64) {
		line.add(span{ctx: ctx, exec: exec, phase: phase, step: phase, first: first, last: last, seq: int32(exec % 3),
			begin: begin, end: end})
	}
	graph(1, 0, ggmlhooks.PhaseSetup, 0, 0, 100, 110)
	graph(2, 0, ggmlhooks.PhasePrefill, 0, 6, 200, 250)
	graph(3, 0, ggmlhooks.PhaseDecode, 7, 7, 300, 320)
	graph(4, 1, ggmlhooks.PhaseDecode, 8, 8, 310, 330)
	graph(5, 0, ggmlhooks.PhaseMaintenance, -1, -1, 400, 410)
	if at := line.decided(); at != 410 {
		t.Errorf("decided up to %d", at)
	}
	known := func(p memtrace.Phase, exec, token, ctx, seq int64) sample.Moment {
		return sample.Moment{Phase: p, Known: true, Exec: exec, Token: token, Ctx: ctx, Seq: seq}
	}
	step := func(p ggmlhooks.Phase, m sample.Moment) sample.Moment { m.Step = p; return m }
	for _, c := range []struct {
		ns   int64
		last bool
		want sample.Moment
	}{
		{99, false, known(memtrace.WeightLoad, -1, -1, -1, -1)},
		{100, false, known(memtrace.Setup, 1, 0, 0, 1)},
		{110, false, known(memtrace.Setup, -1, -1, -1, -1)},
		{249, false, step(ggmlhooks.PhasePrefill, known(memtrace.Generation, 2, -1, 0, 2))},
		{250, false, known(memtrace.Generation, -1, -1, -1, -1)},
		{305, false, step(ggmlhooks.PhaseDecode, known(memtrace.Generation, 3, 7, 0, 0))},
		{315, false, step(ggmlhooks.PhaseDecode, known(memtrace.Generation, -1, -1, -1, -1))}, // of two contexts
		{325, false, step(ggmlhooks.PhaseDecode, known(memtrace.Generation, 4, 8, 1, 1))},
		{405, false, known(memtrace.Maintenance, 5, -1, 0, 2)},
		{500, false, known(memtrace.Generation, -1, -1, -1, -1)},
		{500, true, known(memtrace.Teardown, -1, -1, -1, -1)},
	} {
		if got := line.moment(c.ns, c.last); got != c.want {
			t.Errorf("at %d: %+v, want %+v", c.ns, got, c.want)
		}
	}
	line.add(span{exec: 6, begin: 600, end: math.MaxInt64})
	if at := line.decided(); at != 600 {
		t.Errorf("decided up to %d, while a graph is computed", at)
	}
	line.change(func(s *span) {
		if s.exec == 6 {
			s.end, s.undecided = 620, true
		}
	})
	if at := line.decided(); at != 600 {
		t.Errorf("decided up to %d, while it is not known whether a graph is the run", at)
	}
}

// TestBlockOfPlace: the block of cells of a place in keys, counted over streams; of values, and of what is no
// cache, there is none.
func TestBlockOfPlace(t *testing.T) {
	keys := memtrace.Region{Type: memtrace.KVCache, Part: "k", Shape: []int64{64, 100, 2}, Bytes: 64 * 100 * 2 * 2}
	values, odd, weight := keys, keys, keys
	values.Part, odd.Bytes, weight.Type = "v", keys.Bytes+1, memtrace.Weight
	for _, c := range []struct {
		r      memtrace.Region
		offset uint64
		cells  int
		want   int64
	}{
		{keys, 0, 32, 0}, {keys, 32*128 - 1, 32, 0}, {keys, 32 * 128, 32, 1}, {keys, 100 * 128, 32, 3},
		{keys, 199 * 128, 1, 199}, {keys, 0, 0, -1},
		{values, 0, 32, -1}, {odd, 0, 32, -1}, {weight, 0, 32, -1},
	} {
		if got := block(&c.r, c.offset, c.cells); got != c.want {
			t.Errorf("%s at %d, %d cells: block %d, want %d", c.r.Part, c.offset, c.cells, got, c.want)
		}
	}
}
