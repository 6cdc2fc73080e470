//go:build linux

package session

import (
	"strings"
	"testing"
)

// TestSummaryRates: rates are of graphs of one phase; where all were mixed there is none.
func TestSummaryRates(t *testing.T) {
	text := func(prefill, decode Pace) string {
		var b strings.Builder
		Summary{Prompt: 13, Generated: 8, Prefill: prefill, Decode: decode}.Write(&b, "run")
		return b.String()
	}
	if got := text(Pace{8, 4e9}, Pace{5, 1e9}); !strings.Contains(got, "13 prompt (2.0 tokens/s)") ||
		!strings.Contains(got, "8 decoded (5.0 tokens/s)") {
		t.Error(got)
	}
	if got := text(Pace{}, Pace{}); strings.Contains(got, "tokens/s") {
		t.Error(got)
	}
}
