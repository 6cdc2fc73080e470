package activations

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestTokensLeft: attention of a cache of several streams has whole rows where a batch has a token of each, and none
// where heads lie between the tokens or the streams. What is left out is counted, of chosen tokens too.
func TestTokensLeft(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "fixture", time.Unix(1_790_000_000, 0))
	check(t, err)
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{Workers: 1})
	check(t, err)
	const cells, heads = 8, 2
	var list []map[string]any
	for exec, c := range []struct {
		tokens, streams int64
		rows            label.RowKind
		dim             int8
	}{
		{3, 2, label.RowsNone, 0}, {3, 1, label.RowsTokens, 1}, {1, 2, label.RowsTokens, 3}, {1, 2, label.RowsTokens, 3},
		{1, 1, label.RowsTokens, 1},
	} {
		n := c.tokens * c.streams
		e := stream.Execution{Exec: uint64(exec + 1), Graph: 1, Phase: label.PhaseDecode, TokenFirst: int64(len(list))}
		for range n {
			e.Rows = append(e.Rows, label.Row{Index: int64(len(list)), Seqs: []int32{0}, Phase: label.PhaseDecode})
			list = append(list, map[string]any{"token_index": len(list), "token_id": 1})
		}
		check(t, w.AppendExecution(&e))
		check(t, w.Append(&stream.Packet{Name: "kq_soft_max-0", Node: "kq_soft_max-0", Op: "SOFT_MAX", Occurrence: 1,
			Exec: e.Exec, Graph: 1, Phase: e.Phase, Rows: c.rows, RowDim: c.dim,
			NE: [4]int64{cells, c.tokens, heads, c.streams}, TokenFirst: e.TokenFirst, TokenCount: int32(n)},
			make([]byte, 4*cells*heads*n), func() {}))
	}
	r := sealed(t, d, w, list)
	for _, c := range []struct{ first, left, rows int64 }{{0, 6 + 3 + 1, 4}, {8, 1 + 1, 4}, {10, 1, 3}} {
		a, err := Analyze(context.Background(), r, Options{Filter: tensors.Filter{Tensor: "*"}, First: c.first, End: -1})
		check(t, err)
		if of := a.Tensors[0]; int64(len(of.Rows)) != c.rows || of.TokensLeft != c.left {
			t.Errorf("from %d: %d rows, %d tokens left out, want %+v", c.first, len(of.Rows), of.TokensLeft, c)
		}
		want := fmt.Sprintf("kq_soft_max-0 (%d of %d tokens)", c.left, c.left+c.rows)
		if text := a.subject(); !strings.HasSuffix(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
	}
}

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
