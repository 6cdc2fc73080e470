package ledger

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/resource"
)

// regionPlan is what every execution of a graph does to memory.
type regionPlan struct {
	graph    uint64
	touches  []touch
	experts  []expertRead
	unplaced int64 // operands whose region is not known
	index    map[*memtrace.Region]int
}

// touch is what the ops of a graph do to one region.
type touch struct {
	region                *memtrace.Region
	writes, reads         int64
	written, read         int64 // bytes
	firstWrite, lastWrite int32 // nodes
	firstRead, lastRead   int32
}

// expertRead is a read of weights of experts: how many bytes depends on the experts that were chosen.
type expertRead struct {
	weights *memtrace.Region
	source  int // of the op
	ids     int // node that shows them
	op      resource.Op
}

// regionPlanner finds the regions of one graph.
type regionPlanner struct {
	r      *RegionRecorder
	g      *ggmlhooks.Graph
	plan   *regionPlan
	layout *memtrace.Layout
	nodes  []*memtrace.Region // of nodes, nil where it is not known
	leafs  []*memtrace.Region
}

// plan works out what a graph does to memory, and records in the map where its tensors lie.
func (r *RegionRecorder) plan(g *ggmlhooks.Graph) *regionPlan {
	p := &regionPlanner{
		r: r, g: g, plan: &regionPlan{index: map[*memtrace.Region]int{}}, layout: &memtrace.Layout{},
		nodes: make([]*memtrace.Region, len(g.Nodes)), leafs: make([]*memtrace.Region, len(g.Leafs)),
	}
	names := map[string]int{}
	for i := range g.Leafs {
		l := &g.Leafs[i]
		names[l.Name]++
		p.leafs[i] = p.leaf(l, names[l.Name])
	}
	for i := range g.Nodes {
		p.nodes[i] = p.node(i)
		if g.Nodes[i].Computed {
			p.count(i)
		}
	}
	r.m.Layouts.Set(g.ID, p.layout)
	p.plan.index = nil
	return p.plan
}

// leaf is the region of a tensor that the graph reads and does not compute. nth counts those of its name.
func (p *regionPlanner) leaf(l *ggmlhooks.Leaf, nth int) *memtrace.Region {
	t := mapTensor(l.Name, l.Type, l.NE, l.NB, l.Place)
	b := p.r.m.Buffer(l.Buffer)
	if b == nil || t.Bytes == 0 {
		return nil
	}
	if l.Input || b.Usage == memtrace.UsageCompute {
		region := p.r.m.Activation(int(p.g.Ctx), "", nth, t)
		p.layout.Add(region, t.Buffer, t.Offset, t.Bytes, -1)
		return region
	}
	if part, layer, ok := ggmlhooks.CacheTensor(l.Name); ok && b.Usage != memtrace.UsageWeights {
		t.Part, t.Layer = string(part), layer
	} else {
		t.Layer = ggmlhooks.WeightLayer(l.Name)
	}
	region := p.r.addTensor(t)
	if region != nil && region.Part != "" {
		region.UsedBy(int(p.g.Ctx))
	}
	return region
}

// node is the region that node i writes to, or of which it is a view. Sources come before.
func (p *regionPlanner) node(i int) *memtrace.Region {
	n := &p.g.Nodes[i]
	target := -1
	switch {
	case n.View && len(n.Src) > 0:
		target = 0
	case n.Op == "SET_ROWS":
		target = 2
	case n.Op == "CPY":
		target = 1
	}
	if src, ok := n.SrcAt(target); ok && src != int32(i) { // a conversion copies into itself
		return p.source(src)
	}
	b := p.r.m.Buffer(n.Buffer)
	t := mapTensor(n.Name, n.Type, n.NE, n.NB, n.Place)
	if b == nil || t.Bytes == 0 || !n.Computed && !n.View {
		return nil
	}
	if h := p.r.m.At(n.Buffer, n.Offset); h.Region != nil && h.Region.Tensor != "" {
		return h.Region // an op that writes into a cache
	}
	if n.Alias >= 0 && n.Alias < len(p.g.Nodes) {
		t.Name = p.g.Nodes[n.Alias].Name
	}
	t.Layer = n.Layer
	region := p.r.m.Activation(int(p.g.Ctx), n.Op, n.Occurrence, t)
	p.layout.Add(region, t.Buffer, t.Offset, t.Bytes, i)
	return region
}

// source is the region of a node's source.
func (p *regionPlanner) source(src int32) *memtrace.Region {
	if src >= 0 {
		return p.nodes[src]
	}
	return p.leafs[-1-src]
}

// count counts what node i reads and writes.
func (p *regionPlanner) count(i int) {
	n := &p.g.Nodes[i]
	o := p.op(n)
	if o.Out.Elements() == 0 {
		return // an op on nothing
	}
	if bytes, ok := o.Written(); ok && p.nodes[i] != nil {
		t := p.touch(p.nodes[i])
		if t.writes == 0 {
			t.firstWrite = int32(i)
		}
		t.writes, t.written, t.lastWrite = t.writes+1, t.written+bytes, int32(i)
	} else {
		p.plan.unplaced++
	}
	for k := range o.Src {
		src, ok := n.SrcAt(k)
		if !ok || target(n.Op, k) || o.Src[k].Elements() == 0 {
			continue
		}
		region := p.source(src)
		bytes, known := o.Read(k)
		if !known && o.OfExperts(k) && region != nil {
			ids, _ := n.SrcAt(2)
			p.plan.experts = append(p.plan.experts, expertRead{region, k, int(ids), o})
			bytes, known = 0, true
		}
		if region == nil || !known {
			p.plan.unplaced++
			continue
		}
		t := p.touch(region)
		if t.reads == 0 {
			t.firstRead = int32(i)
		}
		t.reads, t.read, t.lastRead = t.reads+1, t.read+bytes, int32(i)
	}
}

func (p *regionPlanner) touch(region *memtrace.Region) *touch {
	at, ok := p.plan.index[region]
	if !ok {
		at = len(p.plan.touches)
		p.plan.index[region] = at
		p.plan.touches = append(p.plan.touches, touch{region: region})
	}
	return &p.plan.touches[at]
}

// op is a node as formulas see it.
func (p *regionPlanner) op(n *ggmlhooks.Node) resource.Op {
	o := resource.Op{Name: n.Op, Out: opTensor(n.Type, n.NE), Params: n.OpParams}
	for k := range o.Src {
		src, ok := n.SrcAt(k)
		switch {
		case !ok:
		case src >= 0:
			o.Src[k] = opTensor(p.g.Nodes[src].Type, p.g.Nodes[src].NE)
		default:
			o.Src[k] = opTensor(p.g.Leafs[-1-src].Type, p.g.Leafs[-1-src].NE)
		}
	}
	return o
}

func opTensor(kind int, ne [4]int64) resource.Tensor {
	t := gguf.Type(kind)
	return resource.Tensor{NE: ne, BlockValues: t.BlockValues(), BlockBytes: t.BlockBytes()}
}

// mapTensor is a tensor as the map wants it. Bytes is 0 where its type is not known, or where it has no elements.
func mapTensor(name string, kind int, ne [4]int64, nb [4]uint64, at ggmlhooks.Place) memtrace.Tensor {
	t := memtrace.Tensor{Name: name, Layer: memtrace.NoLayer, DType: gguf.Type(kind).
		String(), Buffer: at.Buffer, Offset: at.Offset}
	dims := 4
	for dims > 1 && ne[dims-1] == 1 {
		dims--
	}
	t.Shape = ne[:dims:dims]
	values := gguf.Type(kind).BlockValues()
	if values == 0 || ne[0]*ne[1]*ne[2]*ne[3] <= 0 {
		return t
	}
	t.Bytes = uint64(gguf.Type(kind).BlockBytes()) + uint64(ne[0]/values-1)*nb[0]
	for d := 1; d < 4; d++ {
		t.Bytes += uint64(ne[d]-1) * nb[d]
	}
	return t
}
