package intervene

import (
	"math"
	"testing"
)

// TestQuantile: the median of an even number is the mean of the two in the middle, and others lie between neighbours.
func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		sorted  []float64
		q, want float64
	}{
		{[]float64{7}, 0.99, 7}, {[]float64{1, 2, 4, 9}, 0.5, 3}, {[]float64{1, 2, 4}, 0.5, 2},
		{[]float64{0, 10, 20, 30, 40}, 0.99, 39.6}, {[]float64{1, 2}, 1, 2},
	} {
		if got := quantile(c.sorted, c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("quantile %v of %v is %v, want %v", c.q, c.sorted, got, c.want)
		}
	}
}
