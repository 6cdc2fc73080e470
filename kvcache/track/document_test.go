package track

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestDocumentedColumns: docs/KV.md describes every column that there is, and no other.
func TestDocumentedColumns(t *testing.T) {
	var names []string
	for _, c := range lifeSchema().Columns {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := testenv.DocumentedColumns(t, "KV.md"); !slices.Equal(names, want) {
		t.Errorf("columns %q, the document has %q", names, want)
	}
}
