package resource

import (
	"math"
	"testing"
)

func TestHistogramSlots(t *testing.T) {
	for slot := range HistogramSlots {
		low, high := slotBounds(slot)
		if Slot(low) != slot || Slot(high) != slot {
			t.Errorf("slot %d: bounds %d to %d lie in %d and %d", slot, low, high, Slot(low), Slot(high))
		}
		if slot > 0 {
			if _, before := slotBounds(slot - 1); before+1 != low {
				t.Errorf("slot %d begins with %d, the one before ends with %d", slot, low, before)
			}
		}
	}
	if low, high := strapBounds(7); low != 128 || high != 255 {
		t.Errorf("STRAP-LLM's slot 7: %d to %d", low, high)
	}
}

func TestHistogramFigures(t *testing.T) {
	var h Histogram
	for v := range uint64(1000) {
		h.Add(v)
	}
	before := h
	h.Add(math.MaxUint64)
	if h.Total() != 1001 || before.Percentile(50) != 511 || before.Percentile(100) != 1023 ||
		before.Percentile(0.01) != 0 {
		t.Errorf("total %d, percentiles %d %d %d", h.Total(), before.Percentile(50), before.Percentile(100),
			before.Percentile(0.01))
	}
	var none Histogram
	if none.Percentile(99) != 0 || none.Buckets(false) != nil {
		t.Error("an empty histogram has figures")
	}
	if b := before.Buckets(false); len(b) != 11 || b[10] != (Bucket{Slot: 10, Count: 488, Low: 512, High: 1023}) {
		t.Errorf("buckets %v", b)
	}
}
