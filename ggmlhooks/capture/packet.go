package capture

import (
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/stream"
)

// graph is a description with what each packet of a node repeats.
type graph struct {
	*ggmlhooks.Graph
	names           []string // of nodes' packets; "" for a node that is not captured
	leafs           []string // of leafs' packets
	leafOccurrences []int
}

// newGraph gives nodes and leafs their packet names. Leafs of one name are counted in graph order: models with sliding
// windows have two masks of one name.
func newGraph(g *ggmlhooks.Graph) *graph {
	known := &graph{Graph: g, names: make([]string, len(g.Nodes))}
	for i := range g.Nodes {
		if g.Nodes[i].Wanted {
			known.names[i] = g.PacketName(i)
		}
	}
	seen := map[string]int{}
	for i := range g.Leafs {
		name := g.Leafs[i].Name
		seen[name]++
		known.leafOccurrences = append(known.leafOccurrences, seen[name])
		if k := seen[name]; k > 1 {
			name += "#" + strconv.Itoa(k)
		}
		known.leafs = append(known.leafs, name)
	}
	return known
}

// packetName is the name of the packets of a node or leaf.
func (g *graph) packetName(at int32) string {
	switch {
	case at >= 0:
		return g.names[at]
	case int(-1-at) < len(g.leafs):
		return g.leafs[-1-at]
	}
	return ""
}

// fill makes the packet of a captured piece, without its times.
func (g *graph) fill(p *stream.Packet, x *ggmlhooks.Execution, c *ggmlhooks.Capture) {
	*p = stream.Packet{
		Ctx: x.Ctx, Graph: g.ID, Exec: c.Exec, Phase: x.Phase, SrcType: c.Type, NE: c.NE, NodeIndex: int32(c.Node),
		TokenFirst: x.TokenFirst + int64(c.RowFirst), TokenCount: int32(c.RowCount),
	}
	if c.Node < 0 {
		leaf := -1 - c.Node
		p.Name = g.leafs[leaf]
		p.Node, p.Op, p.Occurrence = g.Leafs[leaf].Name, "NONE", g.leafOccurrences[leaf]
		p.Layer, p.Component = int32(ggmlhooks.NoLayer), ggmlhooks.ComponentInput
		return
	}
	n := &g.Nodes[c.Node]
	shown := n
	if n.Alias >= 0 && n.Alias < len(g.Nodes) {
		shown = &g.Nodes[n.Alias]
	}
	p.Name, p.Node, p.Op, p.Occurrence = g.names[c.Node], n.Name, n.Op, n.Occurrence
	p.Layer, p.Component = int32(n.Layer), n.Component
	p.Rows, p.RowDim = shown.Rows, int8(shown.RowDim)
	if c.Blocks > 1 {
		p.Block, p.Blocks, p.BlockStart = uint32(c.Block), uint32(c.Blocks), c.BlockStart
		p.NE = g.wholeShape(n, shown)
	}
	if dim, rows := shown.RowDim, int64(c.RowCount); p.Rows != ggmlhooks.RowsNone && p.NE[dim] != rows {
		if dim < 3 && p.NE[dim]*p.NE[dim+1] == rows { // tokens of a sequence, sequences: in that order the rows lie
			copy(p.NE[dim+1:], p.NE[dim+2:])
			p.NE[dim], p.NE[3] = rows, 1
		} else if c.Blocks > 1 { // some rows were selected
			p.NE[dim] = rows
		}
	}
}

// wholeShape is the shape of the tensor that a block is a piece of.
func (g *graph) wholeShape(n, shown *ggmlhooks.Node) [4]int64 {
	ne := shown.NE
	if n.Op == "SET_ROWS" && len(n.Src) > 0 { // what was captured is the rows that it writes
		if src := n.Src[0]; src >= 0 {
			ne = g.Nodes[src].NE
		} else {
			ne = g.Leafs[-1-src].NE
		}
	}
	return ne
}
