package ggmlhooks

import "testing"

// TestMatchGlob has the rows of test_globs in cgo/tap/test/test_graph.c: both must judge alike.
func TestMatchGlob(t *testing.T) {
	for _, row := range []struct {
		glob, text string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"a*c", "abbc", true},
		{"a*c", "abbd", false},
		{"*b*", "abc", true}, {"**", "x", true}, {"*-1", "a-1-1", true}, {"?", "", false}, {"?", "x", true},
		{"[abc]", "b", true},
		{"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[^a]", "b", true}, {"[]]", "]", true}, {"[!]]", "]", false},
		{"[a-]", "-", true},
		{"[", "[", false}, {"[ab", "a", true}, {"l_out-[0-1]", "l_out-1", true}, {"l_out-[0-1]", "l_out-2", false},
		{"a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaa", false},
		{"*.weight", "blk.0.weight", true}, {"ffn_*-?", "ffn_out-10", false},
	} {
		if got := matchGlob(row.glob, row.text); got != row.want {
			t.Errorf("%q against %q: %v", row.glob, row.text, got)
		}
	}
}

func TestMatchTensor(t *testing.T) {
	g := Graph{Nodes: []Node{
		{Name: "l_out-3", Number: 1, Alias: -1}, {Name: "Qcur-0", Number: 2, Alias: -1},
		{Name: "node_24", Number: 1, Alias: 3},
		{Name: "kqv_out-0", Number: 1, Alias: -1}, {Name: "result_output", Number: 1, Alias: -1},
		{Name: "l_out-a", Number: 1, Alias: -1},
	}}
	for _, row := range []struct {
		glob string
		node int
		want bool
	}{
		{"l_out", 0, true}, {"l_out-3", 0, true}, {"l_out*", 0, true}, {"l_out", 5, false}, {"ffn", 0, false},
		{"result_output", 4, true},
		{"Qcur", 1, true}, {"Qcur-0", 1, true}, {"Qcur-0#2", 1, true}, {"Qcur#2", 1, true}, {"Q*#[23]", 1, true},
		{"Qcur-0#1", 1, false},
		{"l_out-3#1", 0, true}, {"kqv_out-0", 2, false}, {"kqv_out-0#1", 2, true}, {"node_24", 2, true},
		{"node_24#1", 2, false},
	} {
		if got := g.MatchTensor(row.glob, row.node); got != row.want {
			t.Errorf("%q against %q: %v", row.glob, g.PacketName(row.node), got)
		}
	}
}
