package resources

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// TestSeries: batches hold all that was added and are as many as stated, and about 95 of 100 intervals of a mean hold
// the true one, also where times depend on those before them.
func TestSeries(t *testing.T) {
	const runs = 200
	random := rand.New(rand.NewPCG(1, 2))
	part := Part{By: ByComponent, Name: "mlp"}
	for _, c := range []struct {
		length int
		memory float64 // how much of a time's deviation the next one has
	}{{5, 0}, {39, 0}, {1000, 0.5}} {
		holds, differ := 0, 0
		for range runs {
			var s, other Series
			for _, to := range []*Series{&s, &other} {
				deviation := 0.0
				for range c.length {
					deviation = c.memory*deviation + random.NormFloat64()
					to.add(2, map[Part]int64{{}: 7, part: int64(2e6 + 1e5*deviation)})
				}
			}
			var times int64
			for i, b := range s.batches {
				if times += b.times; i < len(s.batches)-1 && b.times != s.size {
					t.Fatalf("batch %d of %d has %d times of %d", i, len(s.batches), b.times, s.size)
				}
			}
			if times != int64(c.length) || s.Tokens != 2*times || s.NS[Part{}] != 7*times ||
				len(s.batches) > maxBatches || len(s.batches) < min(c.length, maxBatches/2) {
				t.Fatalf("%d of %d times in %d batches: %+v", times, c.length, len(s.batches), s.NS)
			}
			m := s.PerToken(part)
			if half, ok := m.Half(); ok && math.Abs(m.Value-1e6) <= half {
				holds++
			}
			if change, half, ok := m.Change(other.PerToken(part)); !ok || math.Abs(change) > half {
				differ++
			}
		}
		// 5 % of 200 are 10, with a standard deviation of 3.1; batches of 25 times or more remember little.
		if holds < runs*90/100 || holds > runs*99/100 || differ > runs*9/100 {
			t.Errorf("%d times: %d of %d intervals hold the mean, %d of as many pairs differ", c.length, holds, runs,
				differ)
		}
	}
}

// TestPaceOfDrafts: drafts that were rejected are taken from the tokens of the phase that verified them, whichever
// phase the graph that reports them is of.
func TestPaceOfDrafts(t *testing.T) {
	p := paceReading{Paces: &Paces{Phases: map[string]*Pace{}}, inside: map[uint64]map[Part]int64{},
		generated: map[uint32][]*Series{}}
	for _, g := range []struct{ prefill, decode, rejected int }{{0, 5, 0}, {8, 0, 3}, {8, 5, 0}, {8, 0, 0}, {0, 0, 2},
		{0, 5, 1}} {
		phase := phaseDecode
		if g.prefill > 0 {
			phase = phasePrefill
		}
		p.graph(&resource.Graph{Phase: phase, Tokens: g.prefill + g.decode, PrefillTokens: &g.prefill,
			DecodeTokens: &g.decode, Rejected: int64(g.rejected), DurationNS: ptr(int64(1000))})
	}
	p.graph(&resource.Graph{Phase: phaseDecode, Tokens: 99, DurationNS: ptr(int64(1000)), Status: 1}) // aborted
	if err := p.addEvent(resource.KindSessionEnd, []byte(`{"event":"resource_session_end","rejected":4}`)); err != nil {
		t.Fatal(err)
	}
	for phase, want := range map[string]int64{phasePrefill: 16, phaseDecode: 10 - 3 - 4, phaseMixed: 13 - 2 - 1} {
		if got := p.Phases[phase].Graphs.Tokens; got != want {
			t.Errorf("%d tokens of %s, want %d", got, phase, want)
		}
	}
}

// TestMean: a mean of one batch has no interval, and that of equal times has one without length.
func TestMean(t *testing.T) {
	var one, equal Series
	one.add(4, map[Part]int64{{}: 8e9})
	for range 100 {
		equal.add(1, map[Part]int64{{}: 1e9})
	}
	m := one.PerToken(Part{})
	if _, ok := m.Half(); ok || m.Value != 2e9 {
		t.Errorf("%+v", m)
	}
	if half, ok := equal.PerToken(Part{}).Half(); !ok || half != 0 {
		t.Errorf("%v, %v", half, ok)
	}
	if r := m.Inverse(1e9); r.Value != 0.5 {
		t.Errorf("%+v", r)
	}
	if change, half, ok := equal.PerToken(Part{}).Change(equal.PerToken(Part{})); change != 0 || half != 0 || !ok {
		t.Errorf("%v ± %v, %v", change, half, ok)
	}
}
