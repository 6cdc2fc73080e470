package capture

import (
	"fmt"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// Capture takes one captured piece.
func (r *Recorder) Capture(c *ggmlhooks.Capture) error {
	x := r.open[c.Exec]
	if x == nil {
		c.Release()
		return fmt.Errorf("%w: a tensor of execution %d, which has not begun", ggmlhooks.ErrDesync, c.Exec)
	}
	if r.refusing {
		x.flow.Refused.Add(count(c.Data))
		c.Release()
		return nil
	}
	p := &r.packet
	*p = stream.Packet{}
	if err := fill(p, x, c); err != nil {
		c.Release()
		return err
	}
	p.TimeNS = c.MonoNS + r.o.UnixOffset
	p.MonoNS = c.MonoNS
	data, release := c.Data, c.Release
	if r.o.Selection.Granularity == ggmlhooks.SampledSlices && c.Node >= 0 {
		whole := len(c.Data)
		data, release = r.sample(p, c)
		x.flow.Selected.Bytes -= uint64(whole - len(data)) // what is wanted is the share
	}
	if !x.held {
		return r.write(x, p, data, release)
	}
	return r.hold(x, heldPacket{packet: *p, data: data, release: release})
}

// hold keeps a packet of an execution that may be set-up, unless too much is kept by now.
func (r *Recorder) hold(x *execution, p heldPacket) error {
	unit := max(r.o.HoldUnit, 1)
	p.takes = (int64(len(p.data)) + unit - 1) / unit * unit
	x.packets = append(x.packets, p)
	r.use.Held += p.takes
	if r.o.HoldBytes == 0 || r.use.Held <= r.o.HoldBytes {
		return nil
	}
	return r.Relieve()
}

// fill writes what the graph knows of a captured piece.
func fill(p *stream.Packet, x *execution, c *ggmlhooks.Capture) error {
	g := x.g
	p.Ctx, p.Graph, p.Exec, p.Phase = x.Execution.Ctx, g.ID, c.Exec, x.phase
	p.SrcType = c.Type
	p.NE = c.NE
	p.NodeIndex = int32(c.Node)
	p.TokenFirst, p.TokenCount = x.TokenFirst+int64(c.RowFirst), int32(c.RowCount)
	if c.Node < 0 {
		leaf := -1 - c.Node
		if leaf >= len(g.Leafs) {
			return fmt.Errorf("%w: leaf %d of graph %d, which has %d", ggmlhooks.ErrDesync, leaf, g.ID, len(g.Leafs))
		}
		p.Name = g.leafs[leaf]
		p.Node, p.Op, p.Occurrence = g.Leafs[leaf].Name, "NONE", g.leafOccurrences[leaf]
		p.Layer, p.Component = int32(ggmlhooks.NoLayer), ggmlhooks.ComponentInput
		return nil
	}
	if c.Node >= len(g.Nodes) || g.names[c.Node] == "" {
		return fmt.Errorf("%w: node %d of graph %d, which is not captured", ggmlhooks.ErrDesync, c.Node, g.ID)
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
		p.NE = wholeShape(g, n, shown, c)
	}
	return nil
}

// wholeShape is the shape of the tensor that a block is a piece of, with the rows that were selected.
func wholeShape(g *graph, n, shown *ggmlhooks.Node, c *ggmlhooks.Capture) [4]int64 {
	ne := shown.NE
	if n.Op == "SET_ROWS" && len(n.Src) > 0 { // what was captured is the rows that it writes
		if src := n.Src[0]; src >= 0 {
			ne = g.Nodes[src].NE
		} else {
			ne = g.Leafs[-1-src].NE
		}
	}
	if shown.Rows != ggmlhooks.RowsNone && ne[shown.RowDim] != int64(c.RowCount) {
		ne[shown.RowDim] = int64(c.RowCount)
	}
	return ne
}

// sample keeps a random share of a piece's elements, in their order, and gives the piece back.
func (r *Recorder) sample(p *stream.Packet, c *ggmlhooks.Capture) ([]byte, func()) {
	width := elementBytes(c.Type)
	if width == 0 {
		return c.Data, c.Release // block-quantised: elements cannot be taken apart
	}
	total := int64(len(c.Data) / width)
	keep := ggmlhooks.SampleSize(total, r.o.Selection.SamplingRate)
	p.SampleSeed = ggmlhooks.SampleSeed(r.o.Selection.Seed, c.Exec, c.Node, c.RowFirst+c.Block)
	p.SampleTotal = total
	r.scratch = label.SampleIndices(r.scratch[:0], p.SampleSeed, total, keep)
	data := make([]byte, 0, int(keep)*width)
	for _, i := range r.scratch {
		data = append(data, c.Data[int(i)*width:(int(i)+1)*width]...)
	}
	c.Release()
	return data, func() {}
}

// elementBytes is the size of an element of a ggml type, 0 for one that is stored in blocks. The numbers are ggml.h's.
func elementBytes(ggmlType int) int {
	switch ggmlType {
	case 0, 26: // F32, I32
		return 4
	case 1, 25, 30: // F16, I16, BF16
		return 2
	case 24: // I8
		return 1
	case 27, 28: // I64, F64
		return 8
	}
	return 0
}
