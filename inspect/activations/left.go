package activations

import (
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/label"
)

// maxListed is how many names of what was left out a text has.
const maxListed = 4

// countCaptured counts the chosen tokens of which something of each tensor is captured.
func (b *builder) countCaptured(r *tensors.Run) error {
	for _, p := range r.Stream.Packets() {
		t := b.byKey[key{p.Ctx, p.Name}]
		if t != nil && b.o.Filter.Match(p) && p.Phase != label.PhaseSetup && p.TokenFirst >= 0 && p.Block == 0 {
			t.captured += max(0, min(b.o.End, p.TokenFirst+int64(p.TokenCount))-max(b.o.First, p.TokenFirst))
		}
	}
	return r.Stream.Err()
}

// left names what was left out: tokens of tensors, of which the figures are then of the others, and whole tensors.
func (a *Analysis) left() string {
	var names []string
	for _, t := range a.Tensors {
		if n := t.TokensLeft; n > 0 {
			names = append(names, fmt.Sprintf("%s (%d of %d tokens)", t.Name, n, n+int64(len(t.Rows))))
		}
	}
	names = append(names, a.Left...)
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}
