package track

import (
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// A plan is what a graph does to caches, worked out once, when the graph is described.
type plan struct {
	*ggmlhooks.Graph
	touched map[int]*use // by leaf
	order   []int        // leafs, in the order in which they are touched first
	head    int          // first cell that states are written to, -1 = none are
	states  int          // that are written
	copied  int          // leaf that reports where states come from, -1 = none
}

// use is what a graph does to one tensor of a cache.
type use struct {
	layer   int32
	tensor  kvcache.Tensor
	writes  int
	index   int   // leaf that reports which cells are written, -1 = none
	reads   []int // leafs of the masks by which it is read, one for each time; ggmlhooks.NoMask
	writeAt int32 // first node that does
	readAt  int32
	shifted bool // all its cells are written by a graph without tokens
}

func newPlan(g *ggmlhooks.Graph) *plan {
	p := &plan{Graph: g, touched: map[int]*use{}, head: -1, copied: -1}
	masks := p.Masks()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case !n.Computed:
		case g.Tokens == 0:
			p.shift(n, int32(i))
		default:
			p.node(n, int32(i), masks)
		}
	}
	return p
}

// node notes what one node does.
func (p *plan) node(n *ggmlhooks.Node, at int32, masks map[int32]int) {
	switch n.Op {
	case "SET_ROWS":
		if u := p.use(n, 2); u != nil {
			u.writes++
			u.index = p.leaf(n, 1)
			u.writeAt = earliest(u.writeAt, at)
		}
	case "FLASH_ATTN_EXT":
		p.read(n, 1, at, masks[at])
		p.read(n, 2, at, masks[at])
	case "MUL_MAT":
		mask, ok := masks[at]
		if !ok {
			mask = ggmlhooks.NoMask
		}
		p.read(n, 0, at, mask)
	case "GET_ROWS":
		if u := p.use(n, 0); u != nil && (u.tensor == kvcache.R || u.tensor == kvcache.S) {
			p.read(n, 0, at, ggmlhooks.NoMask)
			if leaf := p.leaf(n, 1); leaf >= 0 {
				p.copied = leaf
			}
		}
	case "CPY":
		p.state(n, at)
	}
}

func earliest(a, b int32) int32 {
	if a < 0 {
		return b
	}
	return min(a, b)
}

func (p *plan) read(n *ggmlhooks.Node, src int, at int32, mask int) {
	if u := p.use(n, src); u != nil {
		u.reads = append(u.reads, mask)
		u.readAt = earliest(u.readAt, at)
	}
}

// state notes that states are written: a copy into neighbouring cells of a recurrent cache. Of the two copies of a
// layer that which comes from the layer itself lies first; the other moves states that are not computed now.
func (p *plan) state(n *ggmlhooks.Node, at int32) {
	u := p.use(n, 1)
	if u == nil || u.tensor != kvcache.R && u.tensor != kvcache.S {
		return
	}
	leaf := &p.Leafs[p.leaf(n, 1)]
	row := uint64(leaf.NE[0])
	elements := uint64(n.NE[0] * n.NE[1] * n.NE[2] * n.NE[3])
	if elements == 0 || row == 0 || leaf.NB[1] == 0 || n.Place.Buffer != leaf.Place.Buffer ||
		n.Place.Offset < leaf.Place.Offset {
		return
	}
	head := int((n.Place.Offset - leaf.Place.Offset) / leaf.NB[1])
	u.writes = 1
	u.writeAt = earliest(u.writeAt, at)
	if p.head < 0 || head < p.head {
		p.head, p.states = head, int(elements/row)
	}
}

// shift notes that a graph without tokens works on a cache.
func (p *plan) shift(n *ggmlhooks.Node, at int32) {
	for src := range n.Src {
		if u := p.useOf(p.Origin(n.Src[src])); u != nil {
			u.shifted = true
			u.writeAt, u.readAt = earliest(u.writeAt, at), earliest(u.readAt, at)
		}
	}
}

// leaf returns the number of the leaf that a source of a node shows, or -1.
func (p *plan) leaf(n *ggmlhooks.Node, src int) int {
	at, ok := n.SrcAt(src)
	if !ok {
		return -1
	}
	return p.Origin(at)
}

// use is what is noted of the cache's tensor that a source of a node shows, or nil.
func (p *plan) use(n *ggmlhooks.Node, src int) *use { return p.useOf(p.leaf(n, src)) }

func (p *plan) useOf(leaf int) *use {
	if leaf < 0 {
		return nil
	}
	if u := p.touched[leaf]; u != nil {
		return u
	}
	part, layer, ok := ggmlhooks.CacheTensor(p.Leafs[leaf].Name)
	if !ok {
		return nil
	}
	u := &use{layer: int32(layer), tensor: kvcache.Tensor(part), index: -1, writeAt: -1, readAt: -1}
	p.touched[leaf] = u
	p.order = append(p.order, leaf)
	return u
}

// key says what a graph does to a tensor, so that those to which it does the same have one key. leafs are masks in
// the order in which they are met.
func (u *use) key() string {
	masks := slices.Clone(u.reads)
	slices.Sort(masks)
	return fmt.Sprint(u.writes, masks, u.shifted)
}
