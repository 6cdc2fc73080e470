package bench

import (
	"bytes"
	"strings"
	"testing"
)

// TestTable prints a ratio, a figure in words and a gate, and counts the gates that failed.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out)
	table.Section("a section")
	table.Add(Line{Name: "a", Figure: Interval{0.5, 0.4, 0.6, 8}.String()})
	table.Add(Line{Name: "b", Figure: "in words", Gate: "1", Verdict: Failed})
	table.note("left out")
	for _, want := range []string{
		"a section\n", "0.500 [0.400, 0.600] of 8 pairs", "in words", "failed\n", "left out\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if table.Failed() != 1 {
		t.Errorf("%d failed", table.Failed())
	}
}
