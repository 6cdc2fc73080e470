package kvcache

import "math/bits"

// Histogram counts durations by powers of two. The zero value is empty.
type Histogram struct {
	Count int64 `json:"count"`
	SumNS int64 `json:"sum_ns"`
	// Log2 counts in [i] durations of i bits: 2^(i-1) ≤ ns < 2^i, and 0 in [0].
	Log2 []int64 `json:"log2,omitempty"`
}

// Add counts a duration; one below 0 counts as 0.
func (h *Histogram) Add(ns int64) {
	ns = max(ns, 0)
	n := bits.Len64(uint64(ns))
	for len(h.Log2) <= n {
		h.Log2 = append(h.Log2, 0)
	}
	h.Log2[n]++
	h.Count++
	h.SumNS += ns
}

// clone is a copy that does not change.
func (h *Histogram) clone() Histogram {
	copied := *h
	copied.Log2 = append([]int64(nil), h.Log2...)
	return copied
}
