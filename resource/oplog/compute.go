package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: no allocation per event.

// weakest is the source of the weakest figure of an event that has figures of system B's.
func (r *Recorder) weakest() resource.Source {
	if r.o.Legacy {
		return resource.Estimated
	}
	return resource.Computed
}

// rates adds the time and what follows from it. looking is what looking cost inside of it, 0 = nothing, or not known.
func (r *Recorder) rates(w work, ns int64, of resource.TimeSource, looking int64) {
	l := &r.line
	l.String("time_source", of.String())
	if ns < 0 {
		return
	}
	l.Int("duration_ns", ns)
	r.mark(resource.Measured, "duration_ns")
	if !r.o.Legacy {
		l.Int("estimated_duration_us", ns/1000)
		r.mark(resource.Measured, "estimated_duration_us")
	}
	if looking > 0 {
		l.Int("looking_ns", looking)
		r.mark(resource.Measured, "looking_ns")
	}
	if ns == 0 {
		return
	}
	flops, bytes := float64(w.flops-w.masked)/float64(ns), float64(w.read+w.written)/float64(ns)
	if w.usefulKnown() {
		l.Float("gflops_per_s", flops)
		r.mark(resource.Computed, "gflops_per_s")
	}
	if w.bytesKnown() {
		l.Float("gb_per_s", bytes)
		r.mark(resource.Computed, "gb_per_s")
		if !r.o.Legacy {
			l.Float("memory_throughput_gbps", bytes)
		}
	}
	if share, ok := r.share(w, flops, bytes); ok {
		l.Float("roofline_share", share)
		r.mark(resource.Computed, "roofline_share")
	}
}

// share is how much of what the machine could do at most, at the intensity of the work, was done: of computing, or
// of moving bytes where that is the bound, as it is for work without FLOPs.
func (r *Recorder) share(w work, gflops, gbytes float64) (float64, bool) {
	roof := r.o.Roofline
	if roof == nil || !w.usefulKnown() || !w.bytesKnown() || roof.GFLOPsPerS <= 0 || roof.GBPerS <= 0 {
		return 0, false
	}
	return max(gflops/roof.GFLOPsPerS, gbytes/roof.GBPerS), true
}

// emitRuns records layers and components, and what was computed in them.
func (r *Recorder) emitRuns(ctx *context, x *execution) {
	x.plan.detail(r.memory.device, r.o.Legacy)
	pressure := ""
	if r.o.Pressure != nil {
		pressure = r.o.Pressure()
	}
	layer, next := layerSpan{layer: ggmlhooks.NoLayer}, 0
	for i := range x.plan.runs {
		run, s := &x.plan.runs[i], &x.spans[i]
		if run.layer != layer.layer {
			r.endLayer(x, &layer)
			layer = layerSpan{layer: run.layer, start: s.start}
			r.beginLayer(x, &layer, i)
		}
		layer.add(x, i)
		next = r.emitRun(ctx, x, i, next, pressure)
	}
	r.endLayer(x, &layer)
	for ; next < len(x.ranges); next++ {
		r.emitInterval(ctx, x, &x.ranges[next])
	}
}

// emitRun records run i. next is the first interval that was not recorded; it returns the next one.
func (r *Recorder) emitRun(ctx *context, x *execution, i, next int, pressure string) int {
	run, s := &x.plan.runs[i], &x.spans[i]
	whole := s.ns >= 0
	if whole {
		r.beginComponent(x, run, s)
	}
	for h := range run.handoffs {
		r.emitHandoff(x, &run.handoffs[h], s.start, pressure)
	}
	byOp := x.level == resource.Verbose
	for ; next < len(x.ranges) && x.ranges[next].first <= run.last; next++ {
		if byOp || s.shared {
			r.emitInterval(ctx, x, &x.ranges[next])
		}
	}
	if !byOp && !s.shared {
		r.emitSpan(ctx, x, run, s)
	}
	for _, node := range run.mlps {
		r.emitMLP(x, node, s.start)
	}
	if whole {
		r.endComponent(x, run, s)
	}
	return next
}

// emitSpan records a run of nodes as a whole.
func (r *Recorder) emitSpan(ctx *context, x *execution, run *runPlan, s *span) {
	w := x.work(run.first, run.last)
	looking := ctx.price * int64(s.looks)
	l := &r.line
	r.begin(resource.KindCompute, s.start, int64(x.Ctx))
	r.head.resourceID(l, run.id, s.start)
	l.Uint("exec", x.Number)
	l.Uint("graph", x.Graph.ID)
	l.Int("op_seq", int64(run.first))
	l.String("operation", "range")
	l.String("component_type", run.component)
	l.Int("layer_id", int64(run.layer))
	l.String("phase", x.Phase.String())
	workFields(l, w, x.ownWork(run.first, run.last), r.o.Legacy)
	if r.o.Legacy {
		x.plan.estimates(run.first, run.last, x.level).fields(l)
	}
	r.markWork(w)
	r.maskFields(w)
	r.rates(w, s.ns, resource.TimeRange, looking)
	r.put(resource.KindCompute, r.weakest())
	r.emitParts(x, run.first, run.last, s.start, resource.TimeRange)
}

// emitInterval records an op that was timed, or of the nodes that were timed together.
func (r *Recorder) emitInterval(ctx *context, x *execution, in *interval) {
	w, node, l := x.work(in.first, in.last), &x.plan.nodes[in.last], &r.line
	looking := int64(0)
	if in.ns >= 0 {
		looking = ctx.price
	}
	r.begin(resource.KindCompute, in.start, int64(x.Ctx))
	r.head.resourceID(l, node.id, in.start)
	l.Uint("exec", x.Number)
	l.String("phase", x.Phase.String())
	of := resource.TimeRange
	if in.op {
		of = resource.TimeOp
	}
	switch {
	case w.nodes == 1:
		l.Fields(node.fields)
		if x.plan.sums[in.last+1].minus(x.plan.sums[in.first]) == w {
			l.Fields(node.does)
		} else { // the chosen experts decide its bytes
			workFields(l, w, 0, r.o.Legacy)
		}
		l.Fields(node.legacy)
	default:
		component, layer := "several", ggmlhooks.NoLayer
		if in.run >= 0 {
			component, layer = x.plan.runs[in.run].component, x.plan.runs[in.run].layer
		}
		l.Uint("graph", x.Graph.ID)
		l.Int("op_seq", int64(in.first))
		l.String("operation", "range")
		l.String("component_type", component)
		l.Int("layer_id", int64(layer))
		workFields(l, w, x.ownWork(in.first, in.last), r.o.Legacy)
		if r.o.Legacy {
			x.plan.estimates(in.first, in.last, x.level).fields(l)
		}
	}
	r.markWork(w)
	r.maskFields(w)
	r.rates(w, in.ns, of, looking)
	r.put(resource.KindCompute, r.weakest())
	if w.nodes > 1 {
		r.emitParts(x, in.first, in.last, in.start, resource.TimeRange)
	}
}

func (r *Recorder) beginComponent(x *execution, run *runPlan, s *span) {
	r.begin(resource.KindComponentBegin, s.start, int64(x.Ctx))
	r.componentFields(x, run)
	r.put(resource.KindComponentBegin, resource.Measured)
}

func (r *Recorder) endComponent(x *execution, run *runPlan, s *span) {
	r.begin(resource.KindComponentEnd, s.end, int64(x.Ctx))
	r.componentFields(x, run)
	r.spanFields(s.ns)
	r.line.Int("node_count", int64(x.work(run.first, run.last).nodes))
	r.put(resource.KindComponentEnd, resource.Computed)
}

func (r *Recorder) componentFields(x *execution, run *runPlan) {
	r.line.Uint("exec", x.Number)
	r.line.String("component_type", run.component)
	r.line.Int("layer_id", int64(run.layer))
}

// spanFields adds a duration in system B's unit and in ours.
func (r *Recorder) spanFields(ns int64) {
	r.line.Int("duration_us", ns/1000)
	r.line.Int("duration_ns", ns)
	r.mark(resource.Measured, "duration_us", "duration_ns")
}

// layerSpan is a layer's runs so far.
type layerSpan struct {
	layer      int
	start, end int64
	ns         int64
	work       work
}

func (s *layerSpan) add(x *execution, run int) {
	p, of := &x.plan.runs[run], x.spans[run]
	w := x.work(p.first, p.last)
	s.work = s.work.minus(work{}.minus(w))
	if of.ns < 0 || s.ns < 0 {
		s.ns = -1
		return
	}
	s.ns += of.ns
	s.end = of.end
}

// beginLayer begins the layer of a run, where all runs of it were measured by themselves.
func (r *Recorder) beginLayer(x *execution, s *layerSpan, run int) {
	if s.layer == ggmlhooks.NoLayer {
		return
	}
	for ; run < len(x.spans) && x.plan.runs[run].layer == s.layer; run++ {
		if x.spans[run].ns < 0 {
			return
		}
	}
	r.begin(resource.KindLayerBegin, s.start, int64(x.Ctx))
	r.line.Uint("exec", x.Number)
	r.line.Int("layer_id", int64(s.layer))
	r.put(resource.KindLayerBegin, resource.Measured)
}

func (r *Recorder) endLayer(x *execution, s *layerSpan) {
	if s.layer == ggmlhooks.NoLayer || s.ns < 0 {
		return
	}
	l := &r.line
	r.begin(resource.KindLayerEnd, s.end, int64(x.Ctx))
	l.Uint("exec", x.Number)
	l.Int("layer_id", int64(s.layer))
	r.spanFields(s.ns)
	if s.work.noBytes == 0 {
		l.Float("layer_memory_mb", float64(s.work.read+s.work.written)/mib)
	}
	if s.work.known() {
		l.Float("layer_compute_gflops", float64(s.work.flops)/1e9)
	}
	l.Int("memory_operations", int64(s.work.moves))
	l.Int("compute_operations", int64(s.work.nodes-s.work.moves))
	r.put(resource.KindLayerEnd, resource.Computed)
}

func (r *Recorder) emitHandoff(x *execution, h *handoffPlan, mono int64, pressure string) {
	l := &r.line
	r.begin(resource.KindHandoff, mono, int64(x.Ctx))
	r.head.resourceID(l, h.id, mono)
	l.Uint("exec", x.Number)
	l.Fields(h.fields)
	r.mark(resource.Computed, "data_bytes", "data_size_mb")
	if r.o.Legacy {
		_, gbps, guess := resource.LegacyHandoff(h.from, h.to)
		l.Float("transfer_bandwidth_gbps", gbps)
		pressure = guess
	} else if pressure != "" {
		r.mark(resource.Measured, "memory_pressure")
	}
	if pressure != "" {
		l.String("memory_pressure", pressure)
	}
	r.put(resource.KindHandoff, r.weakest())
}

func (r *Recorder) emitMLP(x *execution, node int, mono int64) {
	m := x.plan.nodes[node].mlp
	r.begin(resource.KindMLP, mono, int64(x.Ctx))
	r.head.resourceID(&r.line, m.id, mono)
	r.line.Uint("exec", x.Number)
	r.line.Fields(m.fields)
	r.mark(resource.Computed, "intermediate_size_mb")
	r.put(resource.KindMLP, r.weakest())
}
