package ledger

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
)

// plan is what every execution of a graph does to memory, in order.
type plan struct {
	tokens   int
	items    []item
	unplaced int64                     // operands of which it is not known where they lie
	loaded   bool                      // that its weights were loaded
	streams  map[int]int64             // of masks, by leaf
	steps    []step                    // nil: not cut yet
	upTo     []int32                   // by node: how many compute, up to this one
	from     map[*memtrace.Buffer]bool // that it reads; nil: nobody asked
}

// computed is how many nodes after one, up to another, compute something.
func (p *plan) computed(behind, last int32) (n int32) {
	if last = min(last, int32(len(p.upTo))-1); last < 0 {
		return 0
	}
	if n = p.upTo[last]; behind >= 0 && behind <= last {
		n -= p.upTo[behind]
	}
	return n
}

// item is one operand of one executed op.
type item struct {
	operand
	kind  itemKind
	spans []span // what every execution touches
	at    extent // otherwise: what rows, cells or experts are parts of
	dim   int    // dimension that they are counted in
	rows  lookup
	cells cells
}

// operand is what is known of an operand beside where it lies.
type operand struct {
	node   int32
	number int32 // -1: what the op writes; 0 and up: its sources
	op     memtrace.AccessOp
	name   string // of the op
	layer  int32  // ggmlhooks.NoLayer
	flags  memtrace.TraceFlag
	region *memtrace.Region // nil: it is not known
	buffer *memtrace.Buffer // nil: it is not known
	sum    *sum             // that it was added to last
}

// itemKind says how the bytes of an item are found.
type itemKind uint8

const (
	itemFixed   itemKind = iota // spans
	itemLookup                  // rows by number
	itemExperts                 // each chosen expert once
	itemWritten                 // cells that tokens are written to
	itemMasked                  // cells that a mask lets tokens read
)

// cells says how cells lie in a cache.
type cells struct {
	leaf    int   // that reports which
	streams int64 // of the mask
	size    int64 // cells of a stream, 0 = not known
	width   int64 // values per cell, where each lies for itself: 1 = they lie together
	plane   uint64
	origin  uint64 // where the cache's tensor begins
}

// planner works out a plan.
type planner struct {
	g      *ggmlhooks.Graph
	m      *memtrace.RegionMap
	layout *memtrace.Layout
	masks  map[int32]int
	fused  []bool // results of nodes that need not be stored
	p      *plan
}

// newPlan works out what a graph does. The map must know where its tensors lie.
func newPlan(g *ggmlhooks.Graph, m *memtrace.RegionMap) *plan {
	p := &planner{g: g, m: m, layout: m.Layouts.Of(g.ID), masks: g.Masks()}
	p.p = &plan{tokens: g.Tokens, streams: map[int]int64{}}
	p.fused = fusible(g)
	p.p.upTo = make([]int32, len(g.Nodes))
	for i, n := 0, int32(0); i < len(g.Nodes); i++ {
		if g.Nodes[i].Computed {
			n++
		}
		p.p.upTo[i] = n
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !n.Computed || elements(n.NE) == 0 {
			continue
		}
		for k := range maxSources {
			if src, ok := n.SrcAt(k); ok {
				p.source(i, k, src)
			}
		}
		p.result(i)
	}
	return p.p
}

const maxSources = 10

// elements is how many values a tensor has; 0 of a shape that none can have.
func elements(ne [4]int64) int64 {
	const most = 1 << 48
	n := int64(1)
	for _, d := range ne {
		if d <= 0 || d > most/n {
			return 0
		}
		n *= d
	}
	return n
}

// result adds what node i writes.
func (p *planner) result(i int) {
	n := &p.g.Nodes[i]
	it := p.item(i, -1, int32(i), memtrace.OpWrite)
	if p.fused[i] {
		it.flags |= memtrace.TraceFusible
	}
	if n.Op == "SET_ROWS" && p.written(n, &it) {
		return
	}
	p.fixed(&it)
}

// source adds what node i reads of its src[k].
func (p *planner) source(i, k int, src int32) {
	n := &p.g.Nodes[i]
	if target(n.Op, k) || elements(sourceOf(p.g, src).ne) == 0 {
		return
	}
	it := p.item(i, k, src, memtrace.OpRead)
	if shown := p.g.Shown(src); shown >= 0 && p.fused[shown] {
		it.flags |= memtrace.TraceFusible
	}
	switch {
	case k == 0 && n.Op == "GET_ROWS":
		p.lookup(n, 1, 1, &it)
	case k == 0 && n.Op == "SSM_SCAN" && n.Slots>>6&1 != 0:
		p.lookup(n, 6, 3, &it)
	case k == 0 && n.Op == "MUL_MAT_ID":
		p.experts(n, 2, &it)
	case k == 1 && n.Op == "ADD_ID":
		p.experts(n, 1, &it)
	case p.masked(i, k, src, &it):
	default:
		p.fixed(&it)
	}
}

// target reports whether src[k] of an op only says where it writes to.
func target(op string, k int) bool { return op == "CPY" && k == 1 || op == "SET_ROWS" && k == 2 }

// item is an operand of node i: tensor src as it lies there.
func (p *planner) item(i, number int, src int32, op memtrace.AccessOp) item {
	n := &p.g.Nodes[i]
	t := sourceOf(p.g, src)
	it := item{at: t.extent(), operand: operand{
		node: int32(i), number: int32(number), op: op, name: n.Op, layer: int32(n.Layer), buffer: p.m.Buffer(t.Buffer),
	}}
	before := i
	if op == memtrace.OpRead {
		before-- // a result may take the place of a source
	}
	it.region = p.region(t.Place, before)
	if it.buffer != nil && repacked(it.buffer.Type) {
		it.flags |= memtrace.TraceRepacked
	}
	return it
}

// repacked reports whether a kind of buffer holds its tensors in an order of its own.
func repacked(kind string) bool {
	for _, word := range [...]string{"REPACK", "AMX", "KLEIDIAI", "AARCH64"} {
		if strings.Contains(kind, word) {
			return true
		}
	}
	return false
}

// region is what lies at a place when a node has been computed.
func (p *planner) region(at ggmlhooks.Place, node int) *memtrace.Region {
	h := p.m.At(at.Buffer, at.Offset)
	if h.Type() == memtrace.ComputeBuffer && p.layout != nil {
		if own := p.layout.At(at.Buffer, at.Offset, node); own.Region != nil {
			h = own
		}
	}
	return h.Region
}

// source is a tensor of a graph as it lies in memory.
type source struct {
	ggmlhooks.Place
	ne   [4]int64
	nb   [4]uint64
	kind gguf.Type
}

// sourceOf is the tensor that a node's source names.
func sourceOf(g *ggmlhooks.Graph, src int32) source {
	if src >= 0 {
		n := &g.Nodes[src]
		return source{n.Place, n.NE, n.NB, gguf.Type(n.Type)}
	}
	l := &g.Leafs[-1-src]
	return source{l.Place, l.NE, l.NB, gguf.Type(l.Type)}
}

// extent is the part of the buffer that the tensor takes.
func (t *source) extent() extent {
	e := extent{offset: t.Offset, ne: t.ne, nb: t.nb}
	if values := t.kind.BlockValues(); values > 0 && e.ne[0]%values == 0 {
		e.block, e.ne[0] = uint64(t.kind.BlockBytes()), e.ne[0]/values
	}
	return e
}

// add adds an item. One that lies nowhere that is known is counted alone.
func (p *planner) add(it *item) {
	if it.buffer == nil {
		p.p.unplaced++
		return
	}
	p.p.items = append(p.p.items, *it)
}

// fixed adds an operand that every execution touches whole.
func (p *planner) fixed(it *item) {
	it.kind = itemFixed
	if it.at.block == 0 {
		it.flags |= memtrace.TraceUnknown
		it.spans = []span{{offset: it.at.offset, pieces: 1}}
	} else {
		it.spans = it.at.spans(nil)
	}
	p.add(it)
}

// somewhere adds an operand of which it is known how much of it is touched, and not where: so many runs.
func (p *planner) somewhere(it *item, run uint64, pieces int64) {
	it.kind, it.spans = itemFixed, []span{{offset: it.at.offset, run: run, pieces: pieces, scattered: true}}
	p.add(it)
}
