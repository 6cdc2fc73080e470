package kvcache

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestTotalsWithoutGaps: where no gaps were read, JSON has none, rather than none that were counted.
func TestTotalsWithoutGaps(t *testing.T) {
	for _, gaps := range [][]float32{nil, {1.5}} {
		q := NewRequest()
		q.Gaps = gaps
		var totals RequestTotals
		totals.Add(&q)
		text, err := json.Marshal(totals)
		if err != nil || strings.Contains(string(text), "inter_token") != (gaps != nil) {
			t.Errorf("gaps %v: %s, %v", gaps, text, err)
		}
	}
}
