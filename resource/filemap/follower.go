package filemap

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Follower reports executions to a Recorder as they happen. It is for one goroutine.
type Follower struct {
	r       *Recorder
	path    func(path string)   // a model's file; nil: not asked for
	weights map[uint32][]string // of the newest graph of each context
	tokens  []resource.WaitToken
}

// NewFollower makes a Follower. path is called with the file of each context's model.
func NewFollower(r *Recorder, path func(string)) *Follower {
	return &Follower{r: r, path: path, weights: map[uint32][]string{}}
}

// Context notes what a context computes with.
func (f *Follower) Context(c *ggmlhooks.Context) error {
	if f.path != nil && c.Path != "" {
		f.path(c.Path)
	}
	return nil
}

// Graph notes the weights that a graph reads, in the order of its nodes.
func (f *Follower) Graph(g *ggmlhooks.Graph) error {
	var names []string
	seen := make([]bool, len(g.Leafs))
	for i := range g.Nodes {
		for _, src := range g.Nodes[i].Src {
			if leaf := int(-1 - src); src < 0 && !seen[leaf] && weight(&g.Leafs[leaf]) {
				seen[leaf] = true
				names = append(names, g.Leafs[leaf].Name)
			}
		}
	}
	f.weights[g.Ctx] = names
	return nil
}

// weight reports whether a leaf is a weight, by its name in the GGUF: caches and inputs are leafs, too.
func weight(l *ggmlhooks.Leaf) bool {
	return !l.Input && (strings.HasSuffix(l.Name, ".weight") || strings.HasSuffix(l.Name, ".bias") ||
		strings.HasPrefix(l.Name, "blk."))
}

// Begin reports an execution that begins.
func (f *Follower) Begin(x *ggmlhooks.Execution) error {
	f.tokens = f.tokens[:0]
	for i := range x.Rows[:min(len(x.Rows), maxTokens)] {
		row := &x.Rows[i]
		t := resource.WaitToken{Index: row.Index, ID: row.Token, Pos: row.Pos, Seq: -1}
		if len(row.Seqs) > 0 {
			t.Seq = row.Seqs[0]
		}
		f.tokens = append(f.tokens, t)
	}
	first := x.TokenFirst
	if len(x.Rows) == 0 {
		first = -1
	}
	f.r.Begin(Graph{
		Ctx: x.Ctx, Exec: x.Number, Phase: x.Phase.String(), TokenFirst: first, TokenCount: len(x.Rows),
		Tokens: f.tokens, BeginNS: x.MonoNS,
		Weights: f.weights[x.Ctx], Held: x.Undecided,
	})
	return nil
}

// End reports its end.
func (f *Follower) End(x *ggmlhooks.Execution) error {
	f.r.End(x.Number, x.End.MonoNS)
	return nil
}

// Close ends nothing: the recorder is closed by who made it.
func (f *Follower) Close() error { return nil }

// Resolve reports what executions were.
func (f *Follower) Resolve(e ggmlhooks.Resolve) error {
	phase := ""
	if e.Discarded {
		phase = ggmlhooks.PhaseSetup.String()
	}
	f.r.decide(e.Ctx, e.Exec, phase)
	return nil
}
