package ledger

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestDocumentedColumns: docs/MEMORY.md describes every column that there is, and no other.
func TestDocumentedColumns(t *testing.T) {
	var names []string
	for _, c := range Schema().Columns {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := testenv.DocumentedColumns(t, "MEMORY.md"); !slices.Equal(names, want) {
		t.Errorf("columns %q, the document has %q", names, want)
	}
}
