package ggmlhooks

import "testing"

// TestMatchGlob has the rows of test_globs in cgo/tap/test/test_graph.c: both must judge alike.
func TestMatchGlob(t *testing.T) {
	for _, row := range []struct {
		glob, text string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"a*c", "abbc", true}, {"a*c", "abbd", false},
		{"*b*", "abc", true}, {"**", "x", true}, {"*-1", "a-1-1", true}, {"?", "", false}, {"?", "x", true}, {"[abc]", "b", true},
		{"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[^a]", "b", true}, {"[]]", "]", true}, {"[!]]", "]", false}, {"[a-]", "-", true},
		{"[", "[", false}, {"[ab", "a", true}, {"l_out-[0-1]", "l_out-1", true}, {"l_out-[0-1]", "l_out-2", false}, {"a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaa", false},
		{"*.weight", "blk.0.weight", true}, {"ffn_*-?", "ffn_out-10", false},
	} {
		if got := matchGlob(row.glob, row.text); got != row.want {
			t.Errorf("%q against %q: %v", row.glob, row.text, got)
		}
	}
}

func TestMatchTensor(t *testing.T) {
	for _, row := range []struct {
		glob, name string
		want       bool
	}{
		{"l_out", "l_out-3", true}, {"l_out-3", "l_out-3", true}, {"l_out*", "l_out-12", true}, {"l_out", "l_out-", false},
		{"l_out", "l_out-a", false}, {"result_output", "result_output", true}, {"ffn", "ffn_out-1", false},
	} {
		if got := MatchTensor(row.glob, row.name); got != row.want {
			t.Errorf("%q against %q: %v", row.glob, row.name, got)
		}
	}
}
