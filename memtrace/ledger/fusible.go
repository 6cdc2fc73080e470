package ledger

import "github.com/llamatap/llamatap/ggmlhooks"

// joins are ops that take their first operands value by value, so that backends of ggml compute them together with
// the op before.
var joins = map[string]bool{
	"ADD": true, "ADD_ID": true, "SUB": true, "MUL": true, "DIV": true, "SCALE": true, "CLAMP": true, "SOFT_MAX": true,
	"SET_ROWS": true,
	"SILU":     true, "GELU": true, "GELU_QUICK": true, "GELU_ERF": true, "RELU": true, "SIGMOID": true, "TANH": true,
	"SQR": true, "SQRT": true, "SOFTPLUS": true, "EXP": true,
	"SWIGLU": true, "SWIGLU_OAI": true, "GEGLU": true, "GEGLU_ERF": true, "GEGLU_QUICK": true, "REGLU": true,
}

// fusible finds the nodes whose results are read once, by the computed node after them, value by value. That is
// what ggml's backends demand before they compute two nodes as one; which pairs they know is their own affair.
func fusible(g *ggmlhooks.Graph) []bool {
	found, uses, last := make([]bool, len(g.Nodes)), make([]int, len(g.Nodes)), make([]int32, len(g.Nodes))
	next := make([]int32, len(g.Nodes)) // computed node after each
	behind := int32(-1)
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		next[i] = behind
		if g.Nodes[i].Computed {
			behind = int32(i)
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !n.Computed {
			continue
		}
		for _, src := range n.Src {
			if shown := g.Shown(src); shown >= 0 {
				uses[shown]++
				last[shown] = int32(i)
			}
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		found[i] = n.Computed && uses[i] == 1 && last[i] == next[i] && joins[g.Nodes[last[i]].Op] &&
			n.Op != "SET_ROWS" && n.Op != "CPY"
	}
	return found
}
