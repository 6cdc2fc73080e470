package memtrace

import (
	"math"
	"slices"
	"testing"
)

// TestSurvivalSteps: the curve of six lives, worked out by hand. Of those that last 3 one ends while three are at
// risk, of 5 the last one.
func TestSurvivalSteps(t *testing.T) {
	var s Survival
	for _, l := range []struct {
		v        int64
		censored bool
	}{{1, false}, {2, true}, {2, false}, {3, false}, {4, true}, {5, false}} {
		s.Add(l.v, 1, l.censored)
	}
	got := slices.Collect(s.Steps())
	want := []SurvivalStep{
		{1, 1, 0, 5.0 / 6}, {2, 1, 1, 5.0 / 6 * 4 / 5}, {3, 1, 0, 5.0 / 6 * 4 / 5 * 2 / 3},
		{4, 0, 1, 5.0 / 6 * 4 / 5 * 2 / 3}, {5, 1, 0, 0},
	}
	if !slices.EqualFunc(got, want, func(a, b SurvivalStep) bool {
		return a.Duration == b.Duration && a.Ended == b.Ended && a.Censored == b.Censored &&
			math.Abs(a.Alive-b.Alive) < 1e-12
	}) {
		t.Errorf("%v, want %v", got, want)
	}
	for range s.Steps() {
		break // may stop early
	}
}
