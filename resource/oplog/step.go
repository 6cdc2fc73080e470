package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

// steps records models, and what a step of LRI has: its phase, its tensors, its beginning and end.
type steps struct {
	*writer
	memory *memory
}

// model records what a context and its model are. It is written with its first graph, when all its buffers are there.
func (s *steps) model(c *ggmlhooks.Context) {
	if !s.level().Includes(resource.KindModel) {
		return
	}
	l := &s.Line
	s.begin(resource.KindModel, s.newest.Load(), int64(c.Number))
	known := func(key string, v int64) {
		if v > 0 {
			l.Int(key, v)
		}
	}
	l.Open("model_info")
	known("n_vocab", int64(c.NVocab))
	known("n_ctx_train", int64(c.NCtxTrain))
	known("n_embd", int64(c.NEmbd))
	known("n_layer", int64(c.NLayer))
	known("n_head", int64(c.NHead))
	known("n_head_kv", int64(c.NHeadKV))
	known("n_params", int64(c.ModelParams))
	if c.ModelBytes > 0 {
		l.Float("model_size_mb", float64(c.ModelBytes)/mib)
	}
	l.Shut()
	l.Open("context_info")
	known("n_ctx", int64(c.NCtx))
	known("n_batch", int64(c.NBatch))
	known("n_ubatch", int64(c.NUBatch))
	known("n_seq_max", int64(c.NSeqMax))
	l.Shut()
	l.Open("memory_usage")
	known("model_size_bytes", int64(c.ModelBytes))
	used := s.memory.byUsage()
	l.Uint("weights_bytes", used[ggmlhooks.BufferWeights])
	l.Uint("compute_bytes", used[ggmlhooks.BufferCompute])
	l.Uint("other_bytes", used[ggmlhooks.BufferAny])
	weakest := resource.Measured
	if s.legacy && c.NCtx > 0 && c.NEmbd > 0 && c.NLayer > 0 {
		l.Uint("context_size_estimate_bytes", uint64(c.NCtx)*uint64(c.NEmbd)*uint64(c.NLayer)*2*4)
		weakest = resource.Estimated
		s.mark(resource.Measured, "model_info", "context_info")
	}
	l.Shut()
	s.put(weakest)
}

// start records that a context entered another phase, that an execution begins, and the tensors that it is the first
// to use.
func (s *steps) start(ctx *context, x *execution) {
	if x.Phase != ctx.phase {
		s.begin(resource.KindPhase, x.MonoNS, int64(x.Ctx))
		s.String("phase", x.Phase.String())
		if ctx.phase != ggmlhooks.PhaseUnknown {
			s.String("previous", ctx.phase.String())
		}
		s.Uint("exec", x.Number)
		s.put(resource.Measured)
		ctx.phase = x.Phase
	}
	if !x.level.Includes(resource.KindStepBegin) {
		return
	}
	s.begin(resource.KindStepBegin, x.MonoNS, int64(x.Ctx))
	s.Uint("exec", x.Number)
	s.String("step_name", x.Phase.String())
	s.put(resource.Measured)
	if !x.plan.tensorsKnown && !x.Failed() {
		x.plan.tensorsKnown = true
		s.tensors(ctx, x)
	}
}

// tensorKey is one tensor of a context, whatever shape it has.
type tensorKey struct {
	name, op   string
	occurrence int
}

// tensors records the tensors of a graph that no graph of the context had before it.
func (s *steps) tensors(ctx *context, x *execution) {
	if ctx.tensors == nil {
		ctx.tensors = map[tensorKey]bool{}
	}
	fresh := func(k tensorKey) bool {
		known := ctx.tensors[k]
		ctx.tensors[k] = true
		return !known
	}
	g := x.plan.graph
	for i := range g.Leafs {
		leaf := &g.Leafs[i]
		if !fresh(tensorKey{leaf.Name, "", 1}) {
			continue
		}
		s.tensor(x, s.role(leaf), leafLayer(leaf.Name), leaf.Name, "NONE", leaf.Type, leaf.NE)
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Computed && fresh(tensorKey{n.Name, n.Op, n.Occurrence}) {
			s.tensor(x, "result", n.Layer, n.Name, n.Op, n.Type, n.NE)
		}
	}
}

// role is what a tensor is that a graph reads and does not compute.
func (s *steps) role(leaf *ggmlhooks.Leaf) string {
	b := s.memory.buffers[leaf.Buffer]
	if leaf.Input || b != nil && b.Usage == ggmlhooks.BufferCompute {
		return "input"
	}
	if _, _, ok := ggmlhooks.CacheTensor(leaf.Name); ok {
		return "cache"
	}
	return "weight"
}

func (s *steps) tensor(x *execution, role string, layer int, name, op string, kind int, ne [4]int64) {
	l := &s.Line
	s.begin(resource.KindTensor, x.MonoNS, int64(x.Ctx))
	l.Uint("exec", x.Number)
	l.Uint("graph", x.Graph.ID)
	l.String("role", role)
	l.String("step_name", x.Phase.String())
	l.Int("layer_id", int64(layer))
	l.Open("metadata")
	l.String("name", name)
	l.String("operation", op)
	l.Key("shape")
	l.Append(func(dst []byte) []byte { return appendShape(dst, ne) })
	l.String("dtype", gguf.Type(kind).String())
	l.Int("element_count", ne[0]*ne[1]*ne[2]*ne[3])
	if gguf.Type(kind).Known() {
		l.Int("memory_bytes", sizeOf(kind, ne))
	}
	l.Key("timestamp")
	l.Quoted((x.MonoNS + s.offset) / 1000)
	l.Shut()
	s.put(resource.Computed)
}

// leafLayer is the layer of a weight, or of a part of a cache.
func leafLayer(name string) int {
	if _, layer, ok := ggmlhooks.CacheTensor(name); ok {
		return layer
	}
	return ggmlhooks.WeightLayer(name)
}

// end records that an execution has ended, and what it did.
func (s *steps) end(x *execution) {
	if !x.level.Includes(resource.KindStepEnd) {
		return
	}
	l := &s.Line
	s.begin(resource.KindStepEnd, x.finish(), int64(x.Ctx))
	l.Uint("exec", x.Number)
	l.String("step_name", x.Phase.String())
	ns, known := x.finish()-x.MonoNS, !x.End.Async || x.done != 0
	if known {
		l.Float("duration_ms", float64(ns)/1e6)
		s.mark(resource.Measured, "duration_ms")
	}
	l.Open("metrics")
	l.Int("tokens", int64(len(x.Rows)))
	if !x.Failed() {
		if known && ns > 0 && len(x.Rows) > 0 {
			l.Float("tokens_per_s", float64(len(x.Rows))/(float64(ns)/1e9))
		}
		x.work(0, len(x.plan.nodes)-1).amounts(l)
	}
	l.Shut()
	s.put(resource.Computed)
}
