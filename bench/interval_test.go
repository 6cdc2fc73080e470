package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

func noisy(center, spread float64, n int) []float64 {
	random := rand.New(rand.NewPCG(7, 7))
	out := make([]float64, n)
	for i := range out {
		out[i] = center + spread*random.NormFloat64()
	}
	return out
}

func TestVerdicts(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		gate   float64
		want   Verdict
	}{
		{"clearly above", noisy(1.0, 0.01, 20), 0.97, Passed},
		{"clearly below", noisy(0.9, 0.01, 20), 0.97, Failed},
		{"in the noise", noisy(0.97, 0.05, 20), 0.97, Unresolved},
		{"too few", []float64{1, 1, 1, 1, 1}, 0.9, Unresolved},
		{"all equal", []float64{1, 1, 1, 1, 1, 1}, 0.9, Passed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			i := medianInterval(test.values)
			if got := i.AtLeast(test.gate); got != test.want {
				t.Errorf("%v: %s, want %s", i, got, test.want)
			}
			if i.Low > i.Median || i.High < i.Median {
				t.Errorf("%v does not hold its median", i)
			}
		})
	}
}

// TestCoverage checks that the interval holds the true median about as often as it says.
func TestCoverage(t *testing.T) {
	testenv.Once(t)
	random := rand.New(rand.NewPCG(3, 9))
	const rounds = 300
	hits := 0
	for range rounds {
		values := make([]float64, 20)
		for i := range values {
			values[i] = 1 + 0.1*random.NormFloat64()
		}
		if i := medianInterval(values); i.Low <= 1 && i.High >= 1 {
			hits++
		}
	}
	if hits < rounds*88/100 {
		t.Errorf("the true median lay in %d of %d intervals", hits, rounds)
	}
}

func TestAtMost(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      Verdict
	}{{10, 20, Passed}, {31, 40, Failed}, {20, 31, Unresolved}} {
		if got := (Interval{Median: (c.low + c.high) / 2, Low: c.low, High: c.high, Pairs: 8}).atMost(
			30); got != c.want {
			t.Errorf("[%g, %g] of at most 30: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		pairs     int
		want      Verdict
	}{{0.96, 1.04, 8, Passed}, {1, 1, 6, Passed}, {0.9, 1.1, 8, Unresolved}, {0.9, 0.99, 8, Failed},
		{1.01, 1.2, 8, Failed}, {0.9, 1.1, 5, Unresolved}} {
		if got := (Interval{Median: c.low, Low: c.low, High: c.high, Pairs: c.pairs}).holds(1); got != c.want {
			t.Errorf("[%g, %g] of %d: %s, want %s", c.low, c.high, c.pairs, got, c.want)
		}
	}
}
