package activations

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyLeft: a text names the first of many tensors that were left out, and how many there are, in lines of its
// width.
func TestManyLeft(t *testing.T) {
	a := &Analysis{Sinks: &Sinks{}}
	for i := range 29 {
		a.Left = append(a.Left, fmt.Sprintf("Qcur-%d (view) (permuted)", i))
	}
	var text strings.Builder
	check(t, a.WriteText(&text, ""))
	head, _, _ := strings.Cut(text.String(), "\n\n")
	if joined := strings.Join(strings.Fields(head), " "); !strings.Contains(joined, "chosen tokens: Qcur-0 (view)") ||
		!strings.HasSuffix(joined, "Qcur-3 (view) (permuted) and 25 more") {
		t.Errorf("%s", head)
	}
	for line := range strings.Lines(head) {
		if len(line) > width+1 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
