package capture

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
)

func TestPacketNames(t *testing.T) {
	node := func(name string, wanted bool, alias int) ggmlhooks.Node {
		return ggmlhooks.Node{Name: name, Wanted: wanted, Alias: alias}
	}
	g := &ggmlhooks.Graph{Nodes: []ggmlhooks.Node{
		node("Qcur-0", true, -1), node("Qcur-0", false, -1), node("Qcur-0", true, -1), node("node_24", true, 4), node("kqv_out-0", false, -1), node("norm-0", true, -1),
	}}
	want := []string{"Qcur-0", "", "Qcur-0#2", "kqv_out-0", "", "norm-0"}
	if got := packetNames(g); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
}

func TestLeafNames(t *testing.T) {
	g := &ggmlhooks.Graph{Leafs: []ggmlhooks.Leaf{{Name: "inp_pos"}, {Name: "attn_inp_kq_mask"}, {Name: "blk.0.attn_q.weight"}, {Name: "attn_inp_kq_mask"}}}
	names, occurrences := leafNames(g)
	if want := []string{"inp_pos", "attn_inp_kq_mask", "blk.0.attn_q.weight", "attn_inp_kq_mask#2"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if want := []int{1, 1, 1, 2}; !slices.Equal(occurrences, want) {
		t.Errorf("occurrences %v, want %v", occurrences, want)
	}
}
