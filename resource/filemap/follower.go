package filemap

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Follower is a ggmlhooks.Sink that passes the executions that the tap reports to a Recorder. It is for one goroutine.
type Follower struct {
	ggmlhooks.NoMachine
	r       *Recorder
	path    func(path string) // a model's file; nil: not asked for
	rows    ggmlhooks.RowJoiner
	weights map[uint64][]string
	newest  map[uint32]uint64 // newest graph of each context
	joined  []ggmlhooks.Row
	begun   []ggmlhooks.RequestBegin
	tokens  []resource.WaitToken
}

// NewFollower makes a Follower. path is called with the file of each context's model.
func NewFollower(r *Recorder, path func(string)) *Follower {
	return &Follower{r: r, path: path, weights: map[uint64][]string{}, newest: map[uint32]uint64{}}
}

// Context notes how a context cuts its batches, and what it computes with.
func (f *Follower) Context(c *ggmlhooks.Context) error {
	f.rows.Context(c)
	if f.path != nil && c.Path != "" {
		f.path(c.Path)
	}
	return nil
}

// Graph notes the weights that a graph reads, in the order of its nodes.
func (f *Follower) Graph(g *ggmlhooks.Graph) error {
	if old, ok := f.newest[g.Ctx]; ok {
		delete(f.weights, old)
	}
	f.newest[g.Ctx] = g.ID
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
	f.weights[g.ID] = names
	return nil
}

// weight reports whether a leaf is a weight, by its name in the GGUF: caches and inputs are leafs, too.
func weight(l *ggmlhooks.Leaf) bool {
	return !l.Input && (strings.HasSuffix(l.Name, ".weight") || strings.HasSuffix(l.Name, ".bias") || strings.HasPrefix(l.Name, "blk."))
}

// Call notes the program's batch.
func (f *Follower) Call(c *ggmlhooks.Call) error {
	f.rows.Call(c)
	return nil
}

// CallEnd ends nothing: micro-batches are framed by themselves.
func (f *Follower) CallEnd(ggmlhooks.CallEnd) error { return nil }

// SeqChange notes what the program did to sequences.
func (f *Follower) SeqChange(c *ggmlhooks.SeqChange) error {
	f.rows.SeqChange(c)
	return nil
}

// Capture releases what is captured for others.
func (f *Follower) Capture(c *ggmlhooks.Capture) error {
	c.Release()
	return nil
}

// Exec passes on the begin of an execution.
func (f *Follower) Exec(e *ggmlhooks.Exec) error {
	var phase ggmlhooks.Phase
	f.joined, f.begun, phase = f.rows.Join(f.joined[:0], f.begun[:0], e)
	f.tokens = f.tokens[:0]
	for i := range f.joined[:min(len(f.joined), maxTokens)] {
		row := &f.joined[i]
		t := resource.WaitToken{Index: row.Index, ID: row.Token, Pos: row.Pos, Seq: -1}
		if len(row.Seqs) > 0 {
			t.Seq = row.Seqs[0]
		}
		f.tokens = append(f.tokens, t)
	}
	first := e.TokenFirst
	if len(f.joined) == 0 {
		first = -1
	}
	f.r.Begin(Graph{
		Ctx: e.Ctx, Exec: e.Number, Phase: phase.String(), TokenFirst: first, TokenCount: len(f.joined), Tokens: f.tokens, BeginNS: e.MonoNS,
		Weights: f.weights[e.Graph], Held: e.Provisional,
	})
	return nil
}

// ExecEnd passes on the end of an execution.
func (f *Follower) ExecEnd(e ggmlhooks.ExecEnd) error {
	f.r.End(e.Number, e.MonoNS)
	return nil
}

// Resolve passes on whether executions were set-up.
func (f *Follower) Resolve(e ggmlhooks.Resolve) error {
	phase := ""
	if e.Discarded {
		f.rows.Forget(e.Ctx)
		phase = ggmlhooks.PhaseSetup.String()
	}
	f.r.Decide(e.Ctx, e.Exec, phase)
	return nil
}
