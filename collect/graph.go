//go:build linux

package collect

import (
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

func (r *Reader) graph(d *decoder) error {
	g := &ggmlhooks.Graph{ID: d.u64(), Ctx: d.u32()}
	nodes, leafs := int(d.u32()), int(d.u32())
	g.Wanted, g.Tokens, g.Outputs = int(d.u32()), int(d.i32()), int(d.i32())
	g.Selection, g.Attention = d.u32(), ggmlhooks.AttentionMode(d.u32())
	if g.Attention > ggmlhooks.AttentionExact {
		return fmt.Errorf("%w: a graph marked for attention mode %d", ErrQueue, g.Attention)
	}
	like, changes := d.u64(), int(d.u32())
	if d.bad || nodes > maxNodes || leafs > maxNodes {
		return fmt.Errorf("%w: a graph of %d nodes and %d leafs", ErrQueue, nodes, leafs)
	}
	old, ok := r.latest[g.Ctx]
	before := r.graphs[old]
	if ok {
		delete(r.graphs, old)
		delete(r.left, old)
	}
	r.latest[g.Ctx] = g.ID
	r.graphs[g.ID] = g
	if like != 0 {
		return r.graphLike(g, before, like, nodes, leafs, changes)
	}
	g.Nodes = make([]ggmlhooks.Node, 0, min(nodes, 4096))
	g.Leafs = make([]ggmlhooks.Leaf, 0, min(leafs, 4096))
	r.left[g.ID] = nodes + leafs
	return nil
}

// graphLike begins a graph that differs from the one before it in what the changes say, and is as large.
func (r *Reader) graphLike(g, before *ggmlhooks.Graph, like uint64, nodes, leafs, changes int) error {
	if before == nil || before.ID != like || len(before.Nodes) != nodes || len(before.Leafs) != leafs || changes > nodes+leafs {
		return fmt.Errorf("%w: graph %d is described by its difference from graph %d, which is not the one before it",
			ErrQueue, g.ID, like)
	}
	g.Nodes, g.Leafs = slices.Clone(before.Nodes), slices.Clone(before.Leafs) // what listeners were handed stays as it is
	r.left[g.ID] = changes
	if changes != 0 {
		return nil
	}
	return r.sink.Graph(g)
}

func (r *Reader) changes(d *decoder) error {
	id, _, count := d.u64(), d.u32(), int(d.u32())
	g := r.graphs[id]
	if g == nil || count > r.left[id] {
		return fmt.Errorf("%w: changes of graph %d, which has none", ErrQueue, id)
	}
	for i := 0; i < count && !d.bad; i++ {
		d.change(g)
	}
	r.left[id] -= count
	if d.bad || r.left[id] != 0 {
		return d.err(recChanges)
	}
	return r.sink.Graph(g)
}

func (r *Reader) nodes(d *decoder, leafs bool) error {
	id, _, count := d.u64(), d.u32(), int(d.u32())
	g := r.graphs[id]
	if g == nil {
		return nil // its head was dropped, and counted
	}
	for i := 0; i < count && !d.bad; i++ {
		if leafs {
			g.Leafs = append(g.Leafs, d.leaf())
		} else {
			g.Nodes = append(g.Nodes, d.node())
		}
	}
	r.left[id] -= count
	if r.left[id] != 0 {
		return d.err(recNodes)
	}
	if err := checkGraph(g); err != nil {
		return err
	}
	return d.then(recNodes, func() error { return r.sink.Graph(g) })
}

// maxNodes bounds what a damaged record can make us expect.
const maxNodes = 1 << 24

// hasNode reports whether the graph has the node, or the leaf -1-i, that the number stands for.
func hasNode(g *ggmlhooks.Graph, number int) bool {
	return number < len(g.Nodes) && -1-number < len(g.Leafs)
}

// checkGraph makes sure that whoever follows the numbers in a graph stays inside of it.
func checkGraph(g *ggmlhooks.Graph) error {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, src := range n.Src {
			if !hasNode(g, int(src)) {
				return fmt.Errorf("%w: node %d of graph %d reads tensor %d, which is not there", ErrQueue, i, g.ID, src)
			}
		}
		if n.Alias < -1 || n.Alias >= len(g.Nodes) {
			return fmt.Errorf("%w: node %d of graph %d is shown as node %d, which is not there", ErrQueue, i, g.ID, n.Alias)
		}
	}
	return nil
}
