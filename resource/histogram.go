package resource

import (
	"math"
	"math/bits"
)

// HistogramSlots is the number of slots of a Histogram.
const HistogramSlots = 32

// Histogram counts values by their power of two, exactly as BPF programs count them
// (resource/bpf/include/histogram.h). Slot 0 holds zeros; slot s from 1 on holds 2^(s-1) to 2^s - 1; the last slot
// holds all that is larger. The unit is the user's: microseconds everywhere that a latency is counted.
type Histogram [HistogramSlots]uint64

// Slot returns the slot of a value.
func Slot(value uint64) int { return min(bits.Len64(value), HistogramSlots-1) }

// slotBounds returns the smallest and the largest value of a slot. The last slot's largest is math.MaxUint64.
func slotBounds(slot int) (low, high uint64) {
	switch {
	case slot <= 0:
		return 0, 0
	case slot >= HistogramSlots-1:
		return 1 << (HistogramSlots - 2), math.MaxUint64
	}
	return 1 << (slot - 1), 1<<slot - 1
}

// strapBounds returns the bounds that STRAP-LLM wrote for a slot, twice too large, for scripts that were written for
// them.
func strapBounds(slot int) (low, high uint64) {
	if slot <= 0 {
		return 0, 1
	}
	return 1 << slot, 1<<(slot+1) - 1
}

// Add counts a value.
func (h *Histogram) Add(value uint64) { h[Slot(value)]++ }

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// Total is the number of values.
func (h *Histogram) Total() uint64 {
	var n uint64
	for _, c := range h {
		n += c
	}
	return n
}

// Percentile returns an upper bound of the value below which p percent of the values lie: the largest value of the
// slot that holds it. It is 0 for an empty histogram.
func (h *Histogram) Percentile(p float64) uint64 {
	total := h.Total()
	if total == 0 {
		return 0
	}
	want := uint64(max(1, math.Ceil(float64(total)*p/100)))
	var seen uint64
	for slot, n := range h {
		if seen += n; seen >= want {
			_, high := slotBounds(slot)
			return high
		}
	}
	_, high := slotBounds(HistogramSlots - 1)
	return high
}

// Buckets lists the slots that hold something, with their bounds: strapBounds where strap is set.
func (h *Histogram) Buckets(strap bool) []Bucket {
	bounds := slotBounds
	if strap {
		bounds = strapBounds
	}
	var buckets []Bucket
	for slot, n := range h {
		if n > 0 {
			low, high := bounds(slot)
			buckets = append(buckets, Bucket{Slot: slot, Count: n, Low: low, High: high})
		}
	}
	return buckets
}
