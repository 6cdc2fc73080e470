package memtrace

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSampled: of accesses of which one in 100 is seen, sums come near the truth, within their interval about as
// often as it says.
func TestSampled(t *testing.T) {
	const truth, period, trials = 20_000, 100, 400
	within := 0
	for seed := range uint64(trials) {
		r := rand.New(rand.NewPCG(seed, 7))
		var s Sampled
		for range truth {
			if r.IntN(period) == 0 {
				s.Add(int64(r.IntN(1000)), Weight, OpRead, uint64(r.IntN(1<<20)), 1, period)
			}
		}
		low, high := s.Types[Weight].Ops[OpRead].Interval()
		if low <= truth && truth <= high {
			within++
		}
		if s.Period() != period || s.Types[Weight].Pages > 256 || s.Types[Weight].Samples != s.Samples {
			t.Fatalf("%+v", s.Types[Weight])
		}
	}
	if share := float64(within) / trials; share < 0.91 || share > 0.99 {
		t.Errorf("the interval holds the truth in %v of all trials", share)
	}
	var all Sampled
	for i := range uint64(500) {
		all.Add(int64(i), Activation, OpUnknown, i*PageBytes/2, 0, 0)
	}
	e := all.Types[Activation].total()
	if low, high := e.Interval(); low != 500 || high != 500 || all.Types[Activation].Pages != 250 || all.Last != 499 {
		t.Errorf("%v to %v, %+v", low, high, all.Types[Activation])
	}
}

// TestKendallTau compares with the coefficient by its definition, over all pairs.
func TestKendallTau(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 8))
		all := make([]Ordered, r.IntN(40))
		for i := range all {
			all[i] = Ordered{int64(r.IntN(12)), int64(r.IntN(12))}
		}
		var agree, against, tiesA, tiesB float64
		for i, x := range all {
			for _, y := range all[:i] {
				a, b := x.A-y.A, x.B-y.B
				switch {
				case a == 0 && b == 0:
					tiesA, tiesB = tiesA+1, tiesB+1
				case a == 0:
					tiesA++
				case b == 0:
					tiesB++
				case (a > 0) == (b > 0):
					agree++
				default:
					against++
				}
			}
		}
		pairs := float64(len(all)*(len(all)-1)) / 2
		known := pairs != tiesA && pairs != tiesB
		got, ok := KendallTau(all)
		if want := (agree - against) / math.Sqrt((pairs-tiesA)*(pairs-tiesB)); ok != known || ok &&
			math.Abs(got-want) > 1e-12 {
			t.Fatalf("seed %d: %v, %v; want %v", seed, got, ok, want)
		}
	}
	if tau, _ := KendallTau([]Ordered{{1, 10}, {2, 20}, {3, 30}}); tau != 1 {
		t.Errorf("the same order: %v", tau)
	}
	if tau, _ := KendallTau([]Ordered{{1, 30}, {2, 20}, {3, 10}}); tau != -1 {
		t.Errorf("the reverse: %v", tau)
	}
}
