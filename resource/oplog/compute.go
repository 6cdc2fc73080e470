package oplog

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: no allocation per event.

// compute records what graphs computed: as a whole, by runs of nodes of one component, by intervals between timed
// nodes, by single nodes.
type compute struct {
	*writer
	device   func(buffer uint64) string
	roofline *resource.Roofline
	pressure func() string
}

// graph records the execution as a whole; rejected is how many tokens of drafts were taken back before it.
func (c *compute) graph(ctx *context, x *execution, rejected int64) {
	ns, ok := x.duration()
	c.begin(resource.KindGraph, x.MonoNS, int64(x.Ctx))
	c.Uint("exec", x.Number)
	c.Uint("graph", x.Graph.ID)
	c.String("phase", x.Phase.String())
	c.Int("tokens", int64(len(x.Rows)))
	if x.Phase != ggmlhooks.PhaseSetup && len(x.Rows) > 0 {
		prefill, decode := x.rowPhases()
		c.Int("prefill_tokens", prefill)
		c.Int("decode_tokens", decode)
	}
	if x.Drafts {
		c.Bool("drafts", true)
	}
	if rejected > 0 {
		c.measured("rejected", rejected)
	}
	if len(x.Rows) > 0 {
		c.Int("token_first", x.TokenFirst)
	}
	c.Int("outputs", int64(len(x.Outputs)))
	total := x.work(0, len(x.plan.nodes)-1)
	c.Int("node_count", int64(total.nodes))
	c.Bool("reused", x.Reused)
	c.Int("status", int64(x.End.Status))
	if !x.Failed() {
		total.amounts(&c.Line)
		total.unmasked(c.writer)
	}
	c.mark(resource.Measured, "tokens", "outputs", "reused", "status")
	if ok {
		c.measured("duration_ns", ns)
	}
	if x.End.Async && x.done != 0 {
		c.String("time_source", resource.TimeSync.String())
		c.measured("sync_wait_ns", x.SyncNS)
	}
	if x.timed && !x.Failed() { // of one that failed, no parts are recorded
		timed := int64(0)
		for _, in := range x.ranges {
			timed += max(in.ns, 0)
		}
		c.measured("timed_ns", timed)
		c.measured("looks", int64(len(x.times)))
		if ctx.price > 0 {
			c.measured("looking_ns", ctx.price)
		}
	}
	c.put(resource.Computed)
}

// recordWholeGraph records what a whole graph did, where nothing inside of it was timed.
func (c *compute) recordWholeGraph(x *execution) {
	last := len(x.plan.nodes) - 1
	total := x.work(0, last)
	if total.nodes == 0 {
		return
	}
	x.plan.detail(c.device, c.legacy)
	ns, ok := x.duration()
	if !ok {
		ns = -1
	}
	c.beginCompute(x, x.plan.id, x.MonoNS)
	c.several(x, 0, last, "graph", "graph", ggmlhooks.NoLayer, total)
	c.putWork(total, ns, x.timeSource(), 0, c.onCPU(x, 0, last))
	c.parts(x, 0, last, x.MonoNS, resource.TimeGraph)
}

// runs records layers and components, and what was computed in them.
func (c *compute) runs(ctx *context, x *execution) {
	x.plan.detail(c.device, c.legacy)
	pressure := ""
	if c.pressure != nil {
		pressure = c.pressure()
	}
	layer, next := layerSpan{writer: c.writer, layer: ggmlhooks.NoLayer}, 0
	for i := range x.plan.runs {
		run, s := &x.plan.runs[i], &x.spans[i]
		if run.layer != layer.layer {
			layer.end(x)
			layer = layerSpan{writer: c.writer, layer: run.layer, beganNS: s.start}
			layer.start(x, i)
		}
		layer.add(x, i)
		next = c.run(ctx, x, i, next, pressure)
	}
	layer.end(x)
	for ; next < len(x.ranges); next++ {
		c.interval(ctx, x, &x.ranges[next])
	}
}

// run records run i. next is the first interval that was not recorded; it returns the next one.
func (c *compute) run(ctx *context, x *execution, i, next int, pressure string) int {
	run, s := &x.plan.runs[i], &x.spans[i]
	whole := s.ns >= 0
	if whole {
		c.beginComponent(resource.KindComponentBegin, s.start, x, run)
		c.put(resource.Measured)
	}
	for h := range run.handoffs {
		c.handoff(x, &run.handoffs[h], s.start, pressure)
	}
	apart := x.level == resource.Verbose || s.shared || run.devices && s.looks > 0
	for ; next < len(x.ranges) && x.ranges[next].first <= run.last; next++ {
		if apart {
			c.interval(ctx, x, &x.ranges[next])
		}
	}
	w := x.work(run.first, run.last)
	if !apart {
		c.beginCompute(x, run.id, s.start)
		c.several(x, run.first, run.last, "range", run.component, run.layer, w)
		c.putWork(w, s.ns, resource.TimeRange, ctx.price*int64(s.looks), c.onCPU(x, run.first, run.last))
		c.parts(x, run.first, run.last, s.start, resource.TimeRange)
	}
	for _, node := range run.mlps {
		m := x.plan.nodes[node].mlp
		c.begin(resource.KindMLP, s.start, int64(x.Ctx))
		c.resourceID(m.id, s.start)
		c.Uint("exec", x.Number)
		c.Fields(m.fields)
		c.mark(resource.Computed, "intermediate_size_mb")
		c.put(c.weakest())
	}
	if whole {
		c.beginComponent(resource.KindComponentEnd, s.end, x, run)
		c.measured("duration_us", s.ns/1000)
		c.measured("duration_ns", s.ns)
		c.Int("node_count", int64(w.nodes))
		c.put(resource.Computed)
	}
	return next
}

func (c *compute) beginComponent(kind resource.Kind, mono int64, x *execution, run *runPlan) {
	c.begin(kind, mono, int64(x.Ctx))
	c.Uint("exec", x.Number)
	c.String("component_type", run.component)
	c.Int("layer_id", int64(run.layer))
}

func (c *compute) handoff(x *execution, h *handoffPlan, mono int64, pressure string) {
	c.begin(resource.KindHandoff, mono, int64(x.Ctx))
	c.resourceID(h.id, mono)
	c.Uint("exec", x.Number)
	c.Fields(h.fields)
	c.mark(resource.Computed, "data_bytes", "data_size_mb")
	if c.legacy {
		_, gbps, guess := resource.LegacyHandoff(h.from, h.to)
		c.Float("transfer_bandwidth_gbps", gbps)
		pressure = guess
	} else if pressure != "" {
		c.mark(resource.Measured, "memory_pressure")
	}
	if pressure != "" {
		c.String("memory_pressure", pressure)
	}
	c.put(c.weakest())
}

// interval records an op that was timed, or the nodes that were timed together.
func (c *compute) interval(ctx *context, x *execution, in *interval) {
	w, node := x.work(in.first, in.last), &x.plan.nodes[in.last]
	looking := int64(0)
	if in.ns >= 0 {
		looking = ctx.price
	}
	of := resource.TimeRange
	if in.op {
		of = resource.TimeOp
	}
	c.beginCompute(x, node.id, in.start)
	if w.nodes == 1 {
		c.Fields(node.fields)
		if x.plan.sums[in.last+1].minus(x.plan.sums[in.first]) == w {
			c.Fields(node.does)
		} else { // the chosen experts decide its bytes
			w.describe(&c.Line, 0, c.legacy)
		}
		c.Fields(node.legacy)
		c.putWork(w, in.ns, of, looking, c.onCPU(x, in.first, in.last))
		return
	}
	component, layer := "several", ggmlhooks.NoLayer
	if in.run >= 0 {
		component, layer = x.plan.runs[in.run].component, x.plan.runs[in.run].layer
	}
	c.several(x, in.first, in.last, "range", component, layer, w)
	c.putWork(w, in.ns, of, looking, c.onCPU(x, in.first, in.last))
	c.parts(x, in.first, in.last, in.start, resource.TimeRange)
}

// parts records those of nodes first to last that have events of their own, in a range or graph that began at a time.
func (c *compute) parts(x *execution, first, last int, start int64, within resource.TimeSource) {
	for i := first; i <= last; i++ {
		node := &x.plan.nodes[i]
		if node.run < 0 || !node.hasEvent(x.level) {
			continue
		}
		c.beginCompute(x, node.id, start)
		c.Fields(node.fields)
		c.String("within", within.String())
		if w := x.plan.sums[i+1].minus(x.plan.sums[i]); w.known() && !c.legacy {
			c.Float("compute_intensity_gflops", float64(w.flops)/1e9)
		}
		c.Fields(node.legacy)
		c.put(c.weakest())
	}
}

// beginCompute starts an event of computing. id is the start of its resource's id.
func (c *compute) beginCompute(x *execution, id string, start int64) {
	c.begin(resource.KindCompute, start, int64(x.Ctx))
	c.resourceID(id, start)
	c.Uint("exec", x.Number)
	c.String("phase", x.Phase.String())
}

// several adds what nodes first to last are, and w, what they did.
func (c *compute) several(x *execution, first, last int, operation, component string, layer int, w work) {
	c.Uint("graph", x.Graph.ID)
	c.Int("op_seq", int64(first))
	c.String("operation", operation)
	c.String("component_type", component)
	c.Int("layer_id", int64(layer))
	w.describe(&c.Line, x.plan.ownFLOPs(first, last, x.level), c.legacy)
	if c.legacy {
		sum := x.plan.estimates(first, last, x.level)
		c.Float("compute_intensity_gflops", sum.gflop)
		c.Int("estimated_duration_us", sum.us)
	}
}

// putWork adds the time of work and what follows from it, and writes the event. ns is -1 where the time is not known;
// looking is what looking cost inside of it, 0 = nothing, or not known. onCPU: the nodes ran on the
// device whose roofline was measured.
func (c *compute) putWork(w work, ns int64, of resource.TimeSource, looking int64, onCPU bool) {
	c.mark(resource.Computed, "node_count")
	if w.noFLOPs < w.nodes {
		c.mark(resource.Computed, "flops")
	}
	if w.noFLOPs > 0 {
		c.mark(resource.Computed, "ops_without_flops")
	}
	if w.noBytes == 0 {
		c.mark(resource.Computed, "bytes_read", "bytes_written")
	} else {
		c.mark(resource.Computed, "ops_without_bytes")
	}
	if w.known() && w.bytesKnown() {
		c.mark(resource.Computed, "arithmetic_intensity")
	}
	w.unmasked(c.writer)
	c.String("time_source", of.String())
	if ns >= 0 {
		c.measured("duration_ns", ns)
		if !c.legacy {
			c.measured("estimated_duration_us", ns/1000)
		}
		if looking > 0 {
			c.measured("looking_ns", looking)
		}
	}
	if ns > 0 {
		c.rates(w, ns, onCPU)
	}
	c.put(c.weakest())
}

// rates adds the rates of work that took some time, and how much of what the machine can do at most that is at the
// work's intensity: of computing, or of moving bytes where that is the bound, as it is for work without FLOPs.
func (c *compute) rates(w work, ns int64, onCPU bool) {
	flops, bytes := float64(w.flops-w.masked)/float64(ns), float64(w.read+w.written)/float64(ns)
	if w.usefulKnown() {
		c.Float("gflops_per_s", flops)
		c.mark(resource.Computed, "gflops_per_s")
	}
	if w.bytesKnown() {
		c.Float("gb_per_s", bytes)
		c.mark(resource.Computed, "gb_per_s")
		if !c.legacy {
			c.Float("memory_throughput_gbps", bytes)
		}
	}
	if roof := c.roofline; onCPU && w.usefulKnown() && w.bytesKnown() && roof.GFLOPsPerS > 0 &&
		roof.GBPerS > 0 {
		c.Float("roofline_share", max(flops/roof.GFLOPsPerS, bytes/roof.GBPerS))
		c.mark(resource.Computed, "roofline_share")
	}
}

// onCPU reports whether the CPU, whose roofline is known, computes all of nodes first to last.
func (c *compute) onCPU(x *execution, first, last int) bool {
	for i := first; c.roofline != nil && i <= last; i++ {
		if n := &x.plan.nodes[i]; n.run >= 0 && !strings.HasPrefix(n.id, "cpu_") {
			return false
		}
	}
	return c.roofline != nil
}
