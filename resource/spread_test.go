package resource

import (
	"math"
	"testing"
)

// TestSpread compares bounds with the true order.
func TestSpread(t *testing.T) {
	var s Spread
	if s.AtMost(0.5) != 0 {
		t.Error("a percentile of nothing")
	}
	for ns := int64(1); ns <= 100_000; ns++ {
		s.Add(ns)
	}
	for _, share := range []float64{0, 0.01, 0.5, 0.95, 0.99, 1} {
		bound, truth := s.AtMost(share), int64(share*100_000)
		if bound < truth || float64(bound) > 1.033*float64(truth)+1 {
			t.Errorf("%.0f %%: at most %d, truly %d", 100*share, bound, truth)
		}
	}
	if got := s.Below(50_000); got > 50_000 || got < 48_000 {
		t.Errorf("%d are at most 50,000", got)
	}
	s.Add(-5)
	s.Add(math.MaxInt64)
	if s.Min != 0 || s.Max != math.MaxInt64 || s.Count != 100_002 || s.AtMost(1) != math.MaxInt64 {
		t.Errorf("%d durations from %d to %d, at most %d", s.Count, s.Min, s.Max, s.AtMost(1))
	}
}

func TestSpreadBuckets(t *testing.T) {
	for bucket := range len(Spread{}.buckets) {
		if got := spreadBucket(spreadBound(bucket)); got != bucket {
			t.Fatalf("bound of bucket %d is in %d", bucket, got)
		}
	}
	for _, v := range []int64{0, 1, 31, 32, 33, 63, 64, 65, 1000, 123456789, math.MaxInt64 - 1, math.MaxInt64} {
		b := spreadBound(spreadBucket(v))
		if b < v || v > 64 && float64(b-v) > float64(v)/32 {
			t.Errorf("%d is bounded by %d", v, b)
		}
	}
}
