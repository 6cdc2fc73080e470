package capture

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
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
