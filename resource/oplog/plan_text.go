package oplog

import (
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// nodeFields is what a compute event of one node says of the node.
func nodeFields(g *ggmlhooks.Graph, i int) []byte {
	n := &g.Nodes[i]
	var l rundir.Line
	l.Begin()
	l.Uint("graph", g.ID)
	l.Int("op_seq", int64(i))
	l.String("operation", strings.ToLower(n.Op))
	l.String("name", n.Name)
	l.String("component_type", n.Component.String())
	l.Int("layer_id", int64(n.Layer))
	if names := sources(g, n); len(names) > 0 {
		l.Key("input_tensors")
		l.Append(func(dst []byte) []byte { return appendTexts(dst, names) })
	}
	l.Key("output_shape")
	l.Append(func(dst []byte) []byte { return appendShape(dst, n.NE) })
	l.String("precision", gguf.Type(n.Type).String())
	return inner(&l)
}

// inner ends an object and returns a copy of its fields, without braces.
func inner(l *rundir.Line) []byte {
	b := l.End()
	return append([]byte(nil), b[1:len(b)-1]...)
}

// sources are the names of a node's sources; one without name has the name that LRI gives it.
func sources(g *ggmlhooks.Graph, n *ggmlhooks.Node) (names []string) {
	for _, src := range n.Src {
		name, _, _ := source(g, src)
		if name == "" {
			name = "unnamed_tensor"
		}
		names = append(names, name)
	}
	return names
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rundir.AppendString(dst, s)
	}
	return append(dst, ']')
}

func appendShape(dst []byte, ne [4]int64) []byte {
	dst = append(dst, '[')
	for i, n := range shape(ne) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return append(dst, ']')
}

// handoffPlan is what an event of a hand-over repeats.
type handoffPlan struct {
	from, to string
	id       string
	fields   []byte
}

// handoff makes the text of what run r reads of another one.
func (p *plan) handoff(r int, f *flow, device func(uint64) string) handoffPlan {
	g, run, from := p.graph, &p.runs[r], &p.runs[f.from]
	var names []string
	size := int64(0)
	for _, src := range f.tensors {
		name, kind, ne := source(g, src)
		names = append(names, name)
		size += sizeOf(kind, ne)
	}
	var l rundir.Line
	l.Begin()
	l.String("from_component", from.component)
	l.String("to_component", run.component)
	if f.through >= 0 {
		l.String("through", p.runs[f.through].component)
	}
	l.Int("from_layer_id", int64(from.layer))
	l.Int("layer_id", int64(run.layer))
	l.Key("tensors")
	l.Append(func(dst []byte) []byte { return appendTexts(dst, names) })
	l.Int("data_bytes", size)
	l.Float("data_size_mb", float64(size)/mib)
	id := idStart(device(g.Nodes[run.first].Buffer), "flow", run.layer, from.component+"_"+run.component)
	return handoffPlan{from.component, run.component, id, inner(&l)}
}

// mlpPlan is what an event of a projection or activation repeats.
type mlpPlan struct {
	id     string
	fields []byte
}

// projections are LRI's names of what a weight of a feed-forward network does.
var projections = []struct{ weight, operation string }{
	{"ffn_gate_inp", ""}, // chooses experts
	{"ffn_gate", "gate_proj"}, {"ffn_up", "up_proj"}, {"ffn_down", "down_proj"},
}

var activations = map[string]bool{
	"SILU": true, "GELU": true, "GELU_QUICK": true, "GELU_ERF": true, "RELU": true, "XIELU": true,
	"REGLU": true, "GEGLU": true, "SWIGLU": true, "SWIGLU_OAI": true, "SWIGLU_CLAMP": true,
	"GEGLU_ERF": true, "GEGLU_QUICK": true,
}

// mlps finds the projections and activations of run r.
func (p *plan) mlps(r int, device func(uint64) string, legacy bool) {
	g, run := p.graph, &p.runs[r]
	if run.component != ggmlhooks.ComponentMLP.String() {
		return
	}
	for i := run.first; i <= run.last; i++ {
		n := &g.Nodes[i]
		operation, function := mlpOperation(g, n)
		if p.nodes[i].run != r || operation == "" {
			continue
		}
		var l rundir.Line
		l.Begin()
		l.Int("op_seq", int64(i))
		l.String("mlp_operation", operation)
		l.Int("layer_id", int64(n.Layer))
		weights := int64(0)
		if operation != "activation" {
			w, _ := n.SrcAt(0)
			_, kind, ne := source(g, w)
			weights = sizeOf(kind, ne)
			l.Key("weight_shape")
			l.Append(func(dst []byte) []byte { return appendShape(dst, ne) })
		}
		l.Key("activation_shape")
		l.Append(func(dst []byte) []byte { return appendShape(dst, n.NE) })
		out := sizeOf(n.Type, n.NE)
		l.Float("intermediate_size_mb", float64(out)/mib)
		l.String("activation_function", function)
		if legacy {
			l.Float("activation_memory_peak_mb", float64(resource.LegacyMLPPeak(operation, weights, out))/mib)
		} else {
			l.Float("activation_memory_peak_mb", float64(out+activationBytes(g, n))/mib)
		}
		p.nodes[i].mlp = &mlpPlan{idStart(device(n.Buffer), "mlp", n.Layer, operation), inner(&l)}
		run.mlps = append(run.mlps, i)
	}
}

// activationBytes is the size of what a node reads and is not a weight.
func activationBytes(g *ggmlhooks.Graph, n *ggmlhooks.Node) (bytes int64) {
	for _, src := range n.Src {
		if at := g.Shown(src); at >= 0 || g.Leafs[-1-at].Input {
			_, kind, ne := source(g, src)
			bytes += sizeOf(kind, ne)
		}
	}
	return bytes
}

// mlpOperation is LRI's name of what a node does in a feed-forward network, and the function that it applies.
func mlpOperation(g *ggmlhooks.Graph, n *ggmlhooks.Node) (operation, function string) {
	if activations[n.Op] {
		return "activation", strings.ToLower(n.Op)
	}
	if n.Op != "MUL_MAT" && n.Op != "MUL_MAT_ID" {
		return "", ""
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(weightName(g, n), "blk."), ".")
	for _, p := range projections {
		if strings.HasPrefix(name, p.weight) {
			return p.operation, "linear"
		}
	}
	return "", ""
}

// legacyWork is what LRI's formulas give for nodes together.
type legacyWork struct {
	gflop float64
	us    int64
}

// estimate works out what LRI would have written of node i.
func (p *plan) estimate(i int, o *resource.Op, w work) {
	n := &p.graph.Nodes[i]
	name := resource.LegacyOperation(o.Name)
	gflop := resource.LegacyGFLOP(name, o.Src[0].NE, o.Src[1].NE)
	us := resource.LegacyDurationUS(name, gflop)
	elements := o.Out.Elements()
	var l rundir.Line
	l.Begin()
	l.Float("compute_intensity_gflops", gflop)
	l.Int("estimated_duration_us", us)
	l.Int("parallelism_factor", int64(resource.LegacyParallelism(elements)))
	ratio := resource.LegacyRatio(gguf.Type(n.Type).String())
	l.Float("memory_throughput_gbps", resource.LegacyBandwidth(name, w.read+w.written, ratio))
	l.Float("sm_utilization_percent", resource.LegacySM(name, elements))
	p.nodes[i].legacy = inner(&l)
	p.nodes[i].estimated = legacyWork{gflop, us}
}

// estimates sums what LRI would have written of those of nodes first to last that have no event of their own.
func (p *plan) estimates(first, last int, level resource.Level) (sum legacyWork) {
	for i := first; i <= last; i++ {
		if n := &p.nodes[i]; n.run >= 0 && !n.hasEvent(level) {
			sum.gflop += n.estimated.gflop
			sum.us += n.estimated.us
		}
	}
	return sum
}
