package bench

import (
	"cmp"
	"math"
	"slices"
)

// mostExact is up to how many values on each side the distribution of U is counted out.
const mostExact = 50

// mannWhitney is the two-sided p value of the hypothesis that two samples come from one distribution, by the
// rank-sum test (Mann and Whitney, On a test of whether one of two random variables is stochastically larger than
// the other, 1947): exact without ties and with at most 50 values on each side, else by the normal approximation
// with the corrections for ties and continuity. It is 1 where a sample is empty or all values are equal.
func mannWhitney(a, b []float64) float64 {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 1
	}
	u, ties := rankSum(a, b)
	if ties == 0 && n <= mostExact && m <= mostExact {
		return exactP(int(math.Round(u)), n, m)
	}
	total := float64(n + m)
	variance := float64(n*m) / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return 1
	}
	away := max(0, math.Abs(u-float64(n*m)/2)-0.5)
	return math.Erfc(away / math.Sqrt(variance) / math.Sqrt2)
}

// rankSum is U of a, the number of pairs in which a's value is the larger one, ties counting half; and the sum of
// t³−t over groups of t equal values.
func rankSum(a, b []float64) (u, ties float64) {
	type value struct {
		v     float64
		first bool
	}
	var values []value
	for _, v := range a {
		values = append(values, value{v, true})
	}
	for _, v := range b {
		values = append(values, value{v, false})
	}
	slices.SortFunc(values, func(x, y value) int { return cmp.Compare(x.v, y.v) })
	var ranks float64
	for i := 0; i < len(values); {
		k := i
		for k < len(values) && values[k].v == values[i].v {
			k++
		}
		for j := i; j < k; j++ {
			if values[j].first {
				ranks += float64(i+k+1) / 2 // the mean of ranks i+1 … k
			}
		}
		t := float64(k - i)
		ties += t*t*t - t
		i = k
	}
	n := float64(len(a))
	return ranks - n*(n+1)/2, ties
}

// exactP counts, of all ways to draw n of n+m ranks, those whose U lies as far from the middle as u.
func exactP(u, n, m int) float64 {
	// ways[i][k] is the number of ways to draw i of the ranks so far with U = k.
	ways := make([][]float64, n+1)
	for i := range ways {
		ways[i] = make([]float64, n*m+1)
	}
	ways[0][0] = 1
	for rank := 1; rank <= n+m; rank++ {
		for i := min(rank, n); i >= 1; i-- {
			gain := rank - i // values of the other sample below this rank
			if gain > m {
				continue
			}
			for k := n * m; k >= gain; k-- {
				ways[i][k] += ways[i-1][k-gain]
			}
		}
	}
	low := min(u, n*m-u)
	var tail, all float64
	for k, w := range ways[n] {
		all += w
		if k <= low {
			tail += w
		}
	}
	return min(1, 2*tail/all)
}
