package capture

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
)

func TestPacketNames(t *testing.T) {
	node := func(name, op string, occurrence int, wanted bool, alias int) ggmlhooks.Node {
		return ggmlhooks.Node{Name: name, Op: op, Occurrence: occurrence, Wanted: wanted, Alias: alias}
	}
	// The selection of attention maps, of every computed node, and of a glob that honours views; the last in a graph with other numbers.
	graphs := []struct {
		nodes []ggmlhooks.Node
		want  []string
	}{{[]ggmlhooks.Node{
		node("Qcur-0", "MUL_MAT", 1, false, -1), node("Qcur-0", "RESHAPE", 1, false, -1), node("Qcur-0", "ROPE", 1, true, -1),
		node("node_24", "FLASH_ATTN_EXT", 1, true, 4), node("kqv_out-0", "RESHAPE", 1, false, -1), node("norm-0", "RMS_NORM", 1, false, -1), node("norm-0", "RMS_NORM", 2, true, -1),
	}, []string{"", "", "Qcur-0", "kqv_out-0", "", "", "norm-0"}}, {[]ggmlhooks.Node{
		node("Qcur-0", "MUL_MAT", 1, true, -1), node("Qcur-0", "RESHAPE", 1, false, -1), node("Qcur-0", "ROPE", 1, true, -1),
		node("node_24", "FLASH_ATTN_EXT", 1, true, 4), node("kqv_out-0", "RESHAPE", 1, false, -1), node("norm-0", "RMS_NORM", 1, true, -1), node("norm-0", "RMS_NORM", 2, true, -1),
	}, []string{"Qcur-0#2", "", "Qcur-0", "kqv_out-0", "", "norm-0#2", "norm-0"}}, {[]ggmlhooks.Node{
		node("Qcur-0", "MUL_MAT", 1, true, -1), node("Qcur-0", "RESHAPE", 1, true, -1), node("Qcur-0", "ROPE", 1, true, -1),
		node("node_25", "FLASH_ATTN_EXT", 1, true, 4), node("kqv_out-0", "RESHAPE", 1, false, -1), node("node_24", "ADD", 1, true, -1), node("node_26", "MUL", 1, true, -1),
	}, []string{"Qcur-0#2", "Qcur-0#3", "Qcur-0", "kqv_out-0", "", "node_24", "node_26"}}, {[]ggmlhooks.Node{
		node("node_24", "MUL", 1, true, -1), node("norm-0", "RMS_NORM", 2, true, -1),
	}, []string{"node_24", "norm-0"}}}
	m := newNamer()
	for i, g := range graphs {
		if got := m.packetNames(&ggmlhooks.Graph{Nodes: g.nodes}); !slices.Equal(got, g.want) {
			t.Errorf("graph %d: names %q, want %q", i, got, g.want)
		}
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
