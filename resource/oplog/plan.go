package oplog

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// plan is what is known of every execution of a graph before it begins.
type plan struct {
	graph     *ggmlhooks.Graph
	id        string // start of the resource's id of all of it
	sums      []work // sums[i] is of the nodes before i; one more than there are nodes
	nodes     []nodePlan
	runs      []runPlan
	experts   []expertNode    // nodes whose bytes depend on the chosen experts, in order
	attention []attentionNode // nodes whose useful FLOPs depend on a mask, in order
	routing   []routingPair
	flows     int // hand-overs between components

	detailed     bool
	tensorsKnown bool // none of its tensors is new
	remote       bool // a part of it lies on a device behind a network
}

// nodePlan is what events of one node repeat.
type nodePlan struct {
	run       int            // index into runs, -1 = it computes nothing
	id        string         // start of its resource's id
	fields    []byte         // what it is
	does      []byte         // and what it does
	legacy    []byte         // estimated figures; nil without
	from      resource.Level // that records it by itself, though it was not timed by itself
	estimated legacyWork
	mlp       *mlpPlan
}

// runPlan is a run of computed nodes that have one layer and component.
type runPlan struct {
	first, last int // nodes
	layer       int
	component   string
	id          string
	devices     bool // several compute it: each range of it, which one device computes, has its own event
	flows       []flow
	handoffs    []handoffPlan // of them
	mlps        []int         // nodes that have an mlpPlan
}

// expertNode is an op of several tokens that reads weights of experts.
type expertNode struct {
	node, ids int
	op        resource.Op
}

// noLeaf stands for a mask that is not an input.
const noLeaf = -1

// attentionNode is an op of flash attention that has a mask.
type attentionNode struct {
	node, mask int // mask is a leaf, or noLeaf
	op         resource.Op
	full       int64 // its FLOPs with every cell
}

// routingPair is the nodes that show a layer's choice of experts; -1: none.
type routingPair struct{ layer, ids, weights int }

// newPlan works out what a graph does. device names the device of a buffer. What events of its parts repeat is added
// by detail, where it is needed.
func newPlan(g *ggmlhooks.Graph, device func(buffer uint64) string, legacy bool) *plan {
	p := &plan{graph: g, nodes: make([]nodePlan, len(g.Nodes)), sums: make([]work, 1, len(g.Nodes)+1)}
	last, name := uint64(0), ""
	for i := range g.Nodes {
		if id := g.Nodes[i].Buffer; id != last {
			last, name = id, device(id)
			p.remote = p.remote || strings.HasPrefix(name, "RPC")
		}
	}
	p.id = idStart(name, "compute", ggmlhooks.NoLayer, "graph")
	for i := range g.Nodes {
		sum := p.sums[i]
		p.nodes[i].run = -1
		if g.Nodes[i].Computed {
			o := opOf(g, i)
			p.add(&sum, i, &o)
			p.noteAttention(i, &o)
			p.join(i)
			p.nodes[i].from = ownFrom(o.Name)
			if legacy {
				p.estimate(i, &o, sum.minus(p.sums[i]))
			}
		}
		p.sums = append(p.sums, sum)
	}
	p.route()
	for r := range p.runs {
		p.flow(r)
	}
	return p
}

// detail makes what events of nodes and runs repeat. device names the device of a buffer.
func (p *plan) detail(device func(buffer uint64) string, legacy bool) {
	if p.detailed {
		return
	}
	p.detailed = true
	g := p.graph
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Computed {
			var l rundir.Line
			l.Begin()
			p.sums[i+1].minus(p.sums[i]).describe(&l, 0, legacy)
			p.nodes[i].id = idStart(device(n.Buffer), "compute", n.Layer, n.Component.String())
			p.nodes[i].fields, p.nodes[i].does = nodeFields(g, i), inner(&l)
		}
	}
	for r := range p.runs {
		run := &p.runs[r]
		on := device(g.Nodes[run.last].Buffer)
		run.id = idStart(on, "compute", run.layer, run.component)
		for i := run.first; i < run.last; i++ {
			run.devices = run.devices || p.nodes[i].run == r && device(g.Nodes[i].Buffer) != on
		}
		for _, f := range run.flows {
			run.handoffs = append(run.handoffs, p.handoff(r, &f, device))
		}
		p.mlps(r, device, legacy)
	}
}

// add adds what node i does to a sum.
func (p *plan) add(sum *work, i int, o *resource.Op) {
	sum.nodes++
	if resource.Moves(o.Name) {
		sum.moves++
	}
	if n, ok := o.FLOPs(); ok {
		sum.flops += n
	} else {
		sum.noFLOPs++
	}
	if read, written, ok := o.Bytes(); ok {
		sum.read += read
		sum.written += written
		return
	}
	sum.noBytes++
	if ids, ok := p.graph.Nodes[i].SrcAt(2); ok && ids >= 0 && (o.OfExperts(0) || o.OfExperts(1)) {
		p.experts = append(p.experts, expertNode{i, int(ids), *o})
	}
}

// noteAttention notes that a node is one of flash attention.
func (p *plan) noteAttention(i int, o *resource.Op) {
	src, ok := p.graph.Nodes[i].SrcAt(3)
	if !ok || o.Name != "FLASH_ATTN_EXT" {
		return
	}
	for src >= 0 { // what is converted for it
		n := &p.graph.Nodes[src]
		if len(n.Src) == 0 || !n.View && n.Op != "CPY" && n.Op != "CONT" && n.Op != "DUP" {
			break
		}
		src = n.Src[0]
	}
	mask := noLeaf // it is computed: nothing reports it
	if src < 0 {
		mask = int(-1 - src)
	}
	if full, ok := o.FLOPs(); ok {
		p.attention = append(p.attention, attentionNode{i, mask, *o, full})
	}
}

// join makes node i part of the run before it, or begins one.
func (p *plan) join(i int) {
	n := &p.graph.Nodes[i]
	if r := len(p.runs) - 1; r >= 0 {
		run := &p.runs[r]
		if run.layer == n.Layer && run.component == n.Component.String() {
			run.last, p.nodes[i].run = i, r
			return
		}
	}
	p.nodes[i].run = len(p.runs)
	p.runs = append(p.runs, runPlan{first: i, last: i, layer: n.Layer, component: n.Component.String()})
}

// route pairs the nodes that show which experts were chosen with those that show how they are weighed.
func (p *plan) route() {
	for i := range p.graph.Nodes {
		n := &p.graph.Nodes[i]
		if !n.Routing || n.Type != int(gguf.I32) || p.showsSlots(i) {
			continue
		}
		pair := routingPair{n.Layer, i, -1}
		for j := range p.graph.Nodes {
			if w := &p.graph.Nodes[j]; w.Routing && w.Type == int(gguf.F32) && w.Layer == n.Layer {
				pair.weights = j
			}
		}
		p.routing = append(p.routing, pair)
	}
}

// showsSlots reports whether a node shows slots of a cache of experts (--moe-cache-mib), which were looked up for
// experts that another node shows.
func (p *plan) showsSlots(i int) bool {
	lookups := 0
	for i >= 0 {
		n := &p.graph.Nodes[i]
		from := 0
		switch {
		case lookups > 0 && n.Routing:
			return true
		case n.Op == "GET_ROWS" && lookups == 0:
			lookups, from = 1, 1
		case n.Op != "RESHAPE" && n.Op != "CONT":
			return false
		}
		src, ok := n.SrcAt(from)
		if !ok {
			return false
		}
		i = int(src)
	}
	return false
}

// ownFLOPs returns the FLOPs of those of nodes first to last that have events of their own at a level.
func (p *plan) ownFLOPs(first, last int, level resource.Level) (flops int64) {
	for i := first; i <= last; i++ {
		if n := &p.nodes[i]; n.run >= 0 && n.hasEvent(level) {
			flops += p.sums[i+1].flops - p.sums[i].flops
		}
	}
	return flops
}

// ownFrom is the level from which on an op has an event of its own, though it is not timed by itself: products of
// matrices, then activations and norms, then all.
func ownFrom(op string) resource.Level {
	switch {
	case strings.HasPrefix(op, "MUL_MAT"), op == "OUT_PROD":
		return resource.Minimal
	case activations[op], strings.HasSuffix(op, "NORM"), op == "SOFT_MAX", op == "SIGMOID", op == "TANH":
		return resource.Detailed
	}
	return resource.Verbose
}

// hasEvent reports whether a computed node that was not timed by itself has an event of its own at a level.
func (n *nodePlan) hasEvent(level resource.Level) bool {
	return level != resource.Off && n.from <= level
}

// opOf is a node as formulas see it.
func opOf(g *ggmlhooks.Graph, i int) resource.Op {
	n := &g.Nodes[i]
	o := resource.Op{Name: n.Op, Out: tensorOf(n.Type, n.NE), Params: n.OpParams}
	for k := range o.Src {
		if src, ok := n.SrcAt(k); ok {
			_, kind, ne := source(g, src)
			o.Src[k] = tensorOf(kind, ne)
		}
	}
	return o
}

func tensorOf(kind int, ne [4]int64) resource.Tensor {
	t := gguf.Type(kind)
	return resource.Tensor{NE: ne, BlockValues: t.BlockValues(), BlockBytes: t.BlockBytes()}
}

// source is the name, type and shape of a node's source.
func source(g *ggmlhooks.Graph, src int32) (name string, kind int, ne [4]int64) {
	if src >= 0 {
		n := &g.Nodes[src]
		return n.Name, n.Type, n.NE
	}
	l := &g.Leafs[-1-src]
	return l.Name, l.Type, l.NE
}

// sizeOf is the bytes of a tensor's elements; 0 where its type is not known.
func sizeOf(kind int, ne [4]int64) int64 {
	t := gguf.Type(kind)
	if t.BlockValues() == 0 {
		return 0
	}
	return ne[0] * ne[1] * ne[2] * ne[3] / t.BlockValues() * t.BlockBytes()
}

// shape leaves out the dimensions of 1 after the last other one.
func shape(ne [4]int64) []int64 {
	n := 4
	for n > 1 && ne[n-1] == 1 {
		n--
	}
	return ne[:n:n]
}

// weightName is the name of the weight that a node's src[0] is, or "".
func weightName(g *ggmlhooks.Graph, n *ggmlhooks.Node) string {
	src, ok := n.SrcAt(0)
	if !ok {
		return ""
	}
	if at := g.Shown(src); at < 0 && !g.Leafs[-1-at].Input && strings.HasPrefix(g.Leafs[-1-at].Name, "blk.") {
		return g.Leafs[-1-at].Name
	}
	return ""
}
