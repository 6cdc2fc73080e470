package kvcache

import (
	"math"
	"slices"
	"sort"
)

// Histogram counts durations in buckets whose bounds are 9 % apart. The zero value is empty.
type Histogram struct {
	Count int64 `json:"count"`
	SumNS int64 `json:"sum_ns"`
	// Buckets has in [0] durations of 0, and in [i] those above 2^((i-1)/8-30) s up to 2^(i/8-30) s: buckets of
	// Prometheus's native histograms with schema [HistogramSchema], from 0.93 ns on.
	Buckets []int64 `json:"buckets,omitempty"`
}

const (
	// HistogramSchema is the base-2 logarithm of how many buckets there are from a power of two to the next.
	HistogramSchema = 3
	// HistogramFirst is the bound of Buckets[i] as an exponent, less i: 2^((i+HistogramFirst)/8) s.
	HistogramFirst = -30 << HistogramSchema
)

// eighths are 2^(i/8-1), bounds of the buckets from ½ to 1.
var eighths = func() []float64 {
	all := make([]float64, 1<<HistogramSchema)
	for i := range all {
		all[i] = math.Exp2(float64(i)/(1<<HistogramSchema) - 1)
	}
	return all
}()

// Add counts a duration; one below 0 counts as 0.
func (h *Histogram) Add(ns int64) {
	ns = max(ns, 0)
	n := 0
	if ns > 0 {
		share, exponent := math.Frexp(float64(ns) / 1e9)
		n = sort.SearchFloat64s(eighths, share) + (exponent-1)<<HistogramSchema - HistogramFirst
	}
	for len(h.Buckets) <= n {
		h.Buckets = append(h.Buckets, 0)
	}
	h.Buckets[n]++
	h.Count++
	h.SumNS += ns
}

// clone is a copy that does not change.
func (h *Histogram) clone() Histogram {
	copied := *h
	copied.Buckets = slices.Clone(h.Buckets)
	return copied
}
