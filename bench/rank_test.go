package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestMannWhitneyExact compares with p values of published tables, and with every way to deal the ranks out, one by
// one.
func TestMannWhitneyExact(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 0.1},
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{5, 6, 7, 8, 9}, []float64{0, 1, 2, 3, 4}, 2.0 / 252},
		{[]float64{1, 3, 5}, []float64{2, 4, 6}, 0.7},
		{nil, []float64{1}, 1},
		{[]float64{1, 1}, []float64{1, 1}, 1},
	} {
		if got := mannWhitney(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v against %v: %g, want %g", c.a, c.b, got, c.want)
		}
	}
	for n := 1; n <= 5; n++ {
		for m := 1; m <= 5; m++ {
			for u := range n*m + 1 {
				if got, want := exactP(u, n, m), dealt(u, n, m); math.Abs(got-want) > 1e-12 {
					t.Errorf("U = %d of %d and %d: %g, want %g", u, n, m, got, want)
				}
			}
		}
	}
}

// dealt is exactP by counting subsets of ranks.
func dealt(u, n, m int) float64 {
	var all, tail int
	for set := range 1 << (n + m) {
		of, drawn, below := 0, 0, 0 // of: U of this subset
		for rank := range n + m {
			if set>>rank&1 == 1 {
				of, drawn = of+below, drawn+1
			} else {
				below++
			}
		}
		if drawn != n {
			continue
		}
		all++
		if min(of, n*m-of) <= min(u, n*m-u) {
			tail++
		}
	}
	return float64(tail) / float64(all)
}

// TestMannWhitneyTies compares the approximation with the share of shuffles that lie as far out.
func TestMannWhitneyTies(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	a, b := make([]float64, 20), make([]float64, 25)
	for i := range a {
		a[i] = float64(random.IntN(8))
	}
	for i := range b {
		b[i] = float64(random.IntN(8)) + float64(random.IntN(2))
	}
	u, ties := rankSum(a, b)
	if ties == 0 {
		t.Fatal("no ties")
	}
	middle := float64(len(a)*len(b)) / 2
	all := append(append([]float64{}, a...), b...)
	const rounds = 20_000
	out := 0
	for range rounds {
		random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		if v, _ := rankSum(all[:len(a)], all[len(a):]); math.Abs(v-middle) >= math.Abs(u-middle) {
			out++
		}
	}
	if got, want := mannWhitney(a, b), float64(out)/rounds; math.Abs(got-want) > 0.015 {
		t.Errorf("p = %.3f, of shuffles %.3f", got, want)
	}
}
