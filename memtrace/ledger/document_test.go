package ledger

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/table"
)

// TestDocumentedColumns: the documents describe every column that there is, and no other.
func TestDocumentedColumns(t *testing.T) {
	for document, schema := range map[string]table.Schema{"MEMORY.md": Schema(), "REGIONS.md": regionSchema()} {
		var names []string
		for _, c := range schema.Columns {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		if want := testenv.DocumentedColumns(t, document); !slices.Equal(names, want) {
			t.Errorf("columns %q, %s has %q", names, document, want)
		}
	}
}
