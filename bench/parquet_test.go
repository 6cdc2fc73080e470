package bench

import (
	"context"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestParquetTable: the table has its lines for both kinds of rows, and their sizes are within their gates,
// whatever machine it is.
func TestParquetTable(t *testing.T) {
	testenv.Once(t, "store/table's TestEveryKind")
	table := NewTable(nil)
	p := Parquet{Time: time.Millisecond, Rounds: 1, Rows: 1 << 16, Table: table, Progress: func(string) {}}
	if err := p.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	sizes := 0
	for _, l := range table.Lines {
		if l.Section != "table" || l.Value <= 0 {
			t.Errorf("%+v", l)
		}
		if l.Unit == "B/row" {
			sizes++
			if l.Verdict != Passed {
				t.Errorf("%s: %.2f bytes per row", l.Name, l.Value)
			}
		}
	}
	if len(table.Lines) != 11 || sizes != 2 {
		t.Errorf("%d lines, %d sizes", len(table.Lines), sizes)
	}
}
