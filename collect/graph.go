//go:build linux

package collect

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// graphs reads the records that describe graphs.
type graphs struct {
	sink   ggmlhooks.Sink
	answer func(*ggmlhooks.Graph)      // names the points of a graph that is not computed
	known  map[uint64]*ggmlhooks.Graph // descriptions that are still arriving, or in use
	newest map[uint32]uint64           // graph of each context
	left   map[uint64]int              // nodes and leafs that are still to come
	differ map[uint64]int              // changes of a graph that are still to come
}

func (gs *graphs) begin(d *decoder) error {
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
	old, ok := gs.newest[g.Ctx]
	before := gs.known[old]
	if gs.left[old]+gs.differ[old] > 0 {
		before = nil // the rest of it will not come
	}
	if ok {
		delete(gs.known, old)
		delete(gs.left, old)
		delete(gs.differ, old)
	}
	gs.newest[g.Ctx] = g.ID
	gs.known[g.ID] = g
	if like != 0 {
		return gs.like(g, before, like, nodes, leafs, changes)
	}
	g.Nodes = make([]ggmlhooks.Node, 0, min(nodes, 4096))
	g.Leafs = make([]ggmlhooks.Leaf, 0, min(leafs, 4096))
	gs.left[g.ID] = nodes + leafs
	return nil
}

// graphLike begins a graph that differs from the one before it in what the changes say, and is as large.
func (gs *graphs) like(g, before *ggmlhooks.Graph, like uint64, nodes, leafs, changes int) error {
	if before == nil || before.ID != like || len(before.Nodes) != nodes || len(before.Leafs) != leafs ||
		changes > nodes+leafs {
		return fmt.Errorf("%w: graph %d is described by its difference from graph %d, which is not the one before it",
			ErrQueue, g.ID, like)
	}
	// What listeners were handed stays as it is.
	g.Nodes, g.Leafs = slices.Clone(before.Nodes), slices.Clone(before.Leafs)
	gs.differ[g.ID] = changes
	if changes != 0 {
		return nil
	}
	return gs.sink.Graph(g)
}

func (gs *graphs) changes(d *decoder) error {
	id, _, count := d.u64(), d.u32(), int(d.u32())
	g := gs.known[id]
	if g == nil || count > gs.differ[id] {
		return fmt.Errorf("%w: changes of graph %d, which has none", ErrQueue, id)
	}
	for i := 0; i < count && !d.bad; i++ {
		readChange(d, g)
	}
	gs.differ[id] -= count
	if d.bad || gs.differ[id] != 0 {
		return d.err(recChanges)
	}
	return gs.sink.Graph(g)
}

func (gs *graphs) nodes(d *decoder, leafs bool) error {
	id, _, count := d.u64(), d.u32(), int(d.u32())
	g := gs.known[id]
	if g == nil {
		return nil // its head was dropped, and counted
	}
	if count > gs.left[id] {
		return fmt.Errorf("%w: graph %d has more nodes or leafs than it began with", ErrQueue, id)
	}
	for i := 0; i < count && !d.bad; i++ {
		if leafs {
			g.Leafs = append(g.Leafs, readLeaf(d))
		} else {
			g.Nodes = append(g.Nodes, readNode(d))
		}
	}
	gs.left[id] -= count
	if gs.left[id] != 0 {
		return d.err(recNodes)
	}
	if err := checkGraph(g); err != nil {
		return err
	}
	return d.then(recNodes, func() error {
		if g.Ctx == asks {
			gs.answer(g)
			return nil
		}
		return gs.sink.Graph(g)
	})
}

// asks is the context of a graph that the tap asks for the points of.
const asks = math.MaxUint32

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
			return fmt.Errorf("%w: node %d of graph %d is shown as node %d, which is not there",
				ErrQueue, i, g.ID, n.Alias)
		}
	}
	return nil
}

func readNode(d *decoder) ggmlhooks.Node {
	e := d.sub(d.u32())
	n := ggmlhooks.Node{Layer: int(e.i32())}
	n.Component, n.Rows = ggmlhooks.Component(e.u8()), ggmlhooks.RowKind(e.u8())
	n.RowDim = int(e.u8())
	n.Inferred = ggmlhooks.InferredFrom(e.u8())
	flags, srcs, name, op := e.u8(), int(e.u8()), int(e.u8()), int(e.u8())
	n.View, n.Wanted, n.Computed, n.Routing = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&16 != 0
	n.Occurrence, n.Type, n.Slots, n.Number = int(e.u16()), int(e.u16()), e.u16(), int(e.u16())
	n.Place = readPlace(&e)
	readShape(&e, &n.NE, &n.NB)
	for i := range n.OpParams {
		n.OpParams[i] = e.i32()
	}
	n.Src = e.i32s(nil, srcs)
	n.Alias = int(e.i32())
	n.Name, n.Op = e.text(name), e.text(op)
	d.bad = d.bad || e.bad || n.Rows > ggmlhooks.RowsOutputs || n.RowDim > 3 || bits.OnesCount16(n.Slots) != srcs
	return n
}

func readPlace(d *decoder) ggmlhooks.Place {
	return ggmlhooks.Place{Buffer: d.u64(), Offset: d.u64()}
}

func readLeaf(d *decoder) ggmlhooks.Leaf {
	e := d.sub(d.u32())
	l := ggmlhooks.Leaf{Type: int(e.u16()), Input: e.u8() != 0}
	name := int(e.u8())
	l.Place = readPlace(&e)
	readShape(&e, &l.NE, &l.NB)
	l.Name = e.text(name)
	d.bad = d.bad || e.bad
	return l
}

// What a change is followed by.
const (
	changePlace = 1 << iota
	changeShape
)

// readChange takes what has changed of a node or leaf, and puts it into the graph.
func readChange(d *decoder, g *ggmlhooks.Graph) {
	e := d.sub(d.u32())
	which, of, rows, rowDim := int(e.i32()), e.u8(), ggmlhooks.RowKind(e.u8()), int(e.u8())
	e.take(5)
	if e.bad || !hasNode(g, which) || rows > ggmlhooks.RowsOutputs || rowDim > 3 {
		d.bad = true
		return
	}
	var place *ggmlhooks.Place
	var ne *[4]int64
	var nb *[4]uint64
	var params *[8]int32
	if which >= 0 {
		n := &g.Nodes[which]
		n.Rows, n.RowDim = rows, rowDim
		place, ne, nb, params = &n.Place, &n.NE, &n.NB, &n.OpParams
	} else {
		l := &g.Leafs[-1-which]
		place, ne, nb = &l.Place, &l.NE, &l.NB
	}
	if of&changePlace != 0 {
		*place = readPlace(&e)
	}
	if of&changeShape != 0 {
		readShape(&e, ne, nb)
		for i := 0; params != nil && i < len(params); i++ {
			params[i] = e.i32()
		}
	}
	d.bad = d.bad || e.bad
}

// readShape takes sizes, and strides in bytes.
func readShape(d *decoder, ne *[4]int64, nb *[4]uint64) {
	for i := range ne {
		ne[i] = int64(d.u64())
	}
	for i := range nb {
		nb[i] = d.u64()
	}
}
