//go:build linux

package session

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks/capture"
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

// TestSummaryCuts: the summary names what the graph was stopped for, where that was not asked for.
func TestSummaryCuts(t *testing.T) {
	cut, whole := capture.Path{Tensor: "l_out-0", Cut: 3}, capture.Path{Tensor: "l_out-1", Whole: 3}
	for _, c := range []struct {
		limited bool
		paths   []capture.Path
		want    string
	}{
		{false, []capture.Path{cut}, ""},
		{true, []capture.Path{cut}, "3 of 3 tensors: l_out-0;"},
		{false, []capture.Path{cut, whole}, "3 of 6 tensors: l_out-0;"},
		{true, []capture.Path{whole}, ""},
	} {
		if got := (Summary{Paths: c.paths, limited: c.limited}).cutFor(); !strings.HasPrefix(got, c.want) ||
			(got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
