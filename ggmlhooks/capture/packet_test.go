package capture

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/stream"
)

// TestPacketNames: whatever is wanted of a graph, a node has the name that its number in the graph gives it.
func TestPacketNames(t *testing.T) {
	nodes := []ggmlhooks.Node{
		{Name: "Qcur-0", Op: "MUL_MAT", Number: 1, Alias: -1}, {Name: "Qcur-0", Op: "RESHAPE", Number: 3, Alias: -1},
		{Name: "Qcur-0", Op: "ROPE", Number: 2, Alias: -1},
		{Name: "node_24", Op: "FLASH_ATTN_EXT", Number: 1, Alias: 4},
		{Name: "kqv_out-0", Op: "RESHAPE", Number: 1, Alias: -1},
		{Name: "norm-0", Op: "RMS_NORM", Number: 1, Alias: -1},
		{Name: "norm-0", Op: "RMS_NORM", Number: 2, Alias: -1}, {Name: "node_29", Op: "ADD", Number: 1, Alias: -1},
	}
	want := []string{"Qcur-0", "Qcur-0#3", "Qcur-0#2", "kqv_out-0", "kqv_out-0", "norm-0", "norm-0#2", "node_29"}
	for wanted := range 1 << len(nodes) {
		for i := range nodes {
			nodes[i].Wanted = wanted>>i&1 != 0
		}
		for i, got := range newGraph(&ggmlhooks.Graph{Nodes: nodes}).names {
			if nodes[i].Wanted && got != want[i] || !nodes[i].Wanted && got != "" {
				t.Errorf("selection %b: node %d is %q, want %q", wanted, i, got, want[i])
			}
		}
	}
}

func TestLeafNames(t *testing.T) {
	g := &ggmlhooks.Graph{Leafs: []ggmlhooks.Leaf{{Name: "inp_pos"}, {Name: "attn_inp_kq_mask"},
		{Name: "blk.0.attn_q.weight"}, {Name: "attn_inp_kq_mask"}}}
	known := newGraph(g)
	names, occurrences := known.leafs, known.leafOccurrences
	if want := []string{"inp_pos", "attn_inp_kq_mask", "blk.0.attn_q.weight",
		"attn_inp_kq_mask#2"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if want := []int{1, 1, 1, 2}; !slices.Equal(occurrences, want) {
		t.Errorf("occurrences %v, want %v", occurrences, want)
	}
}

// TestPacketRows: a packet has a row for each of its tokens, also of a node that counts tokens and sequences apart.
func TestPacketRows(t *testing.T) {
	known := newGraph(&ggmlhooks.Graph{Nodes: []ggmlhooks.Node{
		{Name: "norm", Alias: -1, NE: [4]int64{8, 6, 1, 1}, Rows: ggmlhooks.RowsTokens, RowDim: 1},
		{Name: "conv", Alias: -1, NE: [4]int64{8, 2, 3, 1}, Rows: ggmlhooks.RowsTokens, RowDim: 1},
		{Name: "scan", Alias: -1, NE: [4]int64{4, 2, 2, 3}, Rows: ggmlhooks.RowsTokens, RowDim: 2},
		{Name: "mask", Alias: -1, NE: [4]int64{8, 2, 1, 3}},
	}})
	for _, test := range []struct {
		name string
		c    ggmlhooks.Capture
		want [4]int64
	}{
		{"all rows", ggmlhooks.Capture{Node: 0, NE: [4]int64{8, 6, 1, 1}, RowCount: 6}, [4]int64{8, 6, 1, 1}},
		{"selected rows", ggmlhooks.Capture{Node: 0, NE: [4]int64{8, 2, 1, 1}, RowCount: 2}, [4]int64{8, 2, 1, 1}},
		{"a block of selected rows", ggmlhooks.Capture{Node: 0, NE: [4]int64{4, 2, 1, 1}, RowCount: 2, Blocks: 2},
			[4]int64{8, 2, 1, 1}},
		{"sequences", ggmlhooks.Capture{Node: 1, NE: [4]int64{8, 2, 3, 1}, RowCount: 6}, [4]int64{8, 6, 1, 1}},
		{"a block of sequences", ggmlhooks.Capture{Node: 1, NE: [4]int64{8, 2, 1, 1}, RowCount: 6, Blocks: 3},
			[4]int64{8, 6, 1, 1}},
		{"heads and sequences", ggmlhooks.Capture{Node: 2, NE: [4]int64{4, 2, 2, 3}, RowCount: 6},
			[4]int64{4, 2, 6, 1}},
		{"no rows", ggmlhooks.Capture{Node: 3, NE: [4]int64{8, 2, 1, 3}, RowCount: 6}, [4]int64{8, 2, 1, 3}},
	} {
		var p stream.Packet
		known.fill(&p, &ggmlhooks.Execution{}, &test.c)
		if p.NE != test.want {
			t.Errorf("%s: shape %v, want %v", test.name, p.NE, test.want)
		}
	}
}
