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
