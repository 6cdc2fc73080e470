package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: no allocation per event.

// emit writes all events of an execution that has ended.
func (r *Recorder) emit(ctx *context, x *execution) {
	r.chooseExperts(x)
	measured := x.measure()
	price := x.lookingPrice()
	if price > 0 {
		ctx.price = price
	}
	r.count(x)
	if x.level != resource.Off {
		r.emitPhase(ctx, x)
		r.emitStep(ctx, x)
		if !x.failed() {
			r.emitInside(ctx, x, measured)
		}
		r.emitGraph(ctx, x)
		r.emitStepEnd(x)
	}
}

// emitInside records an execution's tokens, and what was computed.
func (r *Recorder) emitInside(ctx *context, x *execution, measured bool) {
	r.emitTokens(ctx, x)
	if x.level.Includes(resource.KindRouting) && x.Phase != ggmlhooks.PhaseSetup {
		r.emitRouting(x)
	}
	if measured {
		r.emitRuns(ctx, x)
	} else {
		r.emitWhole(x)
	}
}

// emitPhase records that a context went over to another phase.
func (r *Recorder) emitPhase(ctx *context, x *execution) {
	if x.Phase == ctx.phase {
		return
	}
	r.begin(resource.KindPhase, x.MonoNS, int64(x.Ctx))
	r.line.String("phase", x.Phase.String())
	if ctx.phase != ggmlhooks.PhaseUnknown {
		r.line.String("previous", ctx.phase.String())
	}
	r.line.Uint("exec", x.Number)
	r.put(resource.KindPhase, resource.Measured)
	ctx.phase = x.Phase
}

// Retract reports that executions first to last, which were recorded, were set-up.
func (r *Recorder) Retract(ctx uint32, first, last uint64) error {
	clear(r.context(ctx).last)
	if r.Level() == resource.Off {
		return nil
	}
	r.begin(resource.KindPhase, r.head.newest.Load(), int64(ctx))
	r.line.String("phase", ggmlhooks.PhaseSetup.String())
	r.line.Uint("exec", first)
	r.line.Uint("last_exec", last)
	r.put(resource.KindPhase, resource.Measured)
	return nil
}

// emitWhole records what a whole graph did, where nothing inside of it was timed.
func (r *Recorder) emitWhole(x *execution) {
	last := len(x.plan.nodes) - 1
	total := x.work(0, last)
	if total.nodes == 0 {
		return
	}
	x.plan.detail(r.memory.device, r.o.Legacy)
	ns, ok := x.duration()
	if !ok {
		ns = -1
	}
	l := &r.line
	r.begin(resource.KindCompute, x.MonoNS, int64(x.Ctx))
	r.head.resourceID(l, x.plan.id, x.MonoNS)
	l.Uint("exec", x.Number)
	l.Uint("graph", x.Graph.ID)
	l.Int("op_seq", 0)
	l.String("operation", "graph")
	l.String("component_type", "graph")
	l.Int("layer_id", ggmlhooks.NoLayer)
	l.String("phase", x.Phase.String())
	workFields(l, total, x.ownWork(0, last), r.o.Legacy)
	if r.o.Legacy {
		x.plan.estimates(0, last, x.level).fields(l)
	}
	r.markWork(total)
	r.maskFields(total)
	r.rates(total, ns, x.timeSource(), 0)
	r.put(resource.KindCompute, r.weakest())
	r.emitParts(x, 0, last, x.MonoNS, resource.TimeGraph)
}

// emitGraph records the execution as a whole.
func (r *Recorder) emitGraph(ctx *context, x *execution) {
	l := &r.line
	ns, ok := x.duration()
	r.begin(resource.KindGraph, x.MonoNS, int64(x.Ctx))
	l.Uint("exec", x.Number)
	l.Uint("graph", x.Graph.ID)
	l.String("phase", x.Phase.String())
	l.Int("tokens", int64(len(x.Rows)))
	if x.Phase != ggmlhooks.PhaseSetup && len(x.Rows) > 0 {
		prefill, decode := x.rowPhases()
		l.Int("prefill_tokens", prefill)
		l.Int("decode_tokens", decode)
		r.mark(resource.Computed, "prefill_tokens", "decode_tokens")
	}
	if len(x.Rows) > 0 {
		l.Int("token_first", x.TokenFirst)
	}
	l.Int("outputs", int64(len(x.Outputs)))
	total := x.work(0, len(x.plan.nodes)-1)
	l.Int("node_count", int64(total.nodes))
	l.Bool("reused", x.Reused)
	l.Int("status", int64(x.End.Status))
	if !x.failed() {
		workKnown(l, total)
		r.maskFields(total)
	}
	r.mark(resource.Measured, "tokens", "outputs", "reused", "status")
	if ok {
		l.Int("duration_ns", ns)
		r.mark(resource.Measured, "duration_ns")
	}
	if x.End.Async && x.done != 0 {
		l.String("time_source", resource.TimeSync.String())
		l.Int("sync_wait_ns", x.SyncNS)
		r.mark(resource.Measured, "sync_wait_ns")
	}
	r.timedFields(ctx, x)
	r.put(resource.KindGraph, resource.Computed)
}

// timedFields adds what was timed inside of a graph.
func (r *Recorder) timedFields(ctx *context, x *execution) {
	if !x.timed {
		return
	}
	timed := int64(0)
	for _, in := range x.ranges {
		timed += max(in.ns, 0)
	}
	r.line.Int("timed_ns", timed)
	r.mark(resource.Measured, "timed_ns", "looks")
	if ctx.price > 0 {
		r.line.Int("looking_ns", ctx.price)
		r.mark(resource.Measured, "looking_ns")
	}
	r.line.Int("looks", int64(len(x.times)))
}
