package oplog

import (
	"encoding/json"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// totals are those of the session.
type totals struct {
	start   int64
	flops   int64
	unknown int64 // nodes without a formula
	flows   int64
	graphs  int64
	tokens  int64
	phases  map[ggmlhooks.Phase]*resource.PhaseTotals
}

func (t *totals) phase(of ggmlhooks.Phase) *resource.PhaseTotals {
	p := t.phases[of]
	if p == nil {
		p = &resource.PhaseTotals{FLOPs: new(int64)}
		t.phases[of] = p
	}
	return p
}

// startSession writes the first two events.
func (r *Recorder) startSession() {
	r.head.see(r.totals.start)
	l := &r.line
	r.begin(resource.KindSessionStart, r.totals.start, noCtx)
	l.String("level", r.Level().String())
	l.Int("events_version", resource.Version)
	if r.o.Threads > 0 {
		l.Int("threads", int64(r.o.Threads))
	}
	if roof := r.o.Roofline; roof != nil {
		l.Open("roofline")
		l.Float("gflops_per_s", roof.GFLOPsPerS)
		l.Float("gb_per_s", roof.GBPerS)
		l.Shut()
	}
	r.put(resource.KindSessionStart, resource.Measured)
	r.begin(resource.KindTrackingBegin, r.totals.start, noCtx)
	r.put(resource.KindTrackingBegin, resource.Measured)
}

// count adds an execution to the totals, whatever is recorded of it. One that failed has its time, and no work.
func (r *Recorder) count(x *execution) {
	t := &r.totals
	p := t.phase(x.Phase)
	t.graphs++
	p.Graphs++
	p.DurationNS += x.finish() - x.MonoNS
	if x.failed() {
		return
	}
	sum := x.plan.total()
	t.flops += sum.flops
	t.unknown += int64(sum.noFLOPs)
	t.flows += int64(x.plan.flows)
	t.tokens += int64(len(x.Rows))
	if prefill, decode := x.rowPhases(); x.Phase == ggmlhooks.PhasePrefill && decode > 0 {
		p.Tokens += prefill
		t.phase(ggmlhooks.PhaseDecode).Tokens += decode
	} else {
		p.Tokens += prefill + decode
	}
	*p.FLOPs += sum.flops
	p.OpsWithoutFLOPs += int64(sum.noFLOPs)
}

// endSession writes the totals and the last event.
func (r *Recorder) endSession(mono int64) {
	mono = max(mono, r.head.newest.Load())
	r.head.see(mono)
	l, t, m, stats := &r.line, &r.totals, &r.memory, r.out.Stats()
	r.begin(resource.KindSummary, mono, noCtx)
	l.Float("total_memory_mb", float64(m.peak)/mib)
	l.Float("total_compute_gflops", float64(t.flops)/1e9)
	l.Int("component_flows", t.flows)
	l.Uint("peak_live_bytes", m.peak)
	l.Uint("allocated_bytes", m.allocated)
	l.Uint("freed_bytes", m.freed)
	l.Int("flops", t.flops)
	if t.unknown > 0 {
		l.Int("ops_without_flops", t.unknown)
	}
	l.Int("graphs", t.graphs)
	l.Int("tokens", t.tokens)
	l.Uint("events", stats.Lines)
	if len(stats.Lost) > 0 {
		l.Key("lost")
		l.Append(func(dst []byte) []byte { return appendJSON(dst, stats.Lost) })
	}
	r.mark(resource.Measured, "total_memory_mb", "peak_live_bytes", "allocated_bytes", "freed_bytes", "component_flows", "graphs", "tokens", "events")
	r.put(resource.KindSummary, resource.Computed)
	r.begin(resource.KindSessionEnd, mono, noCtx)
	l.Int("duration_ns", mono-t.start)
	phases := map[string]*resource.PhaseTotals{}
	for phase, p := range t.phases {
		phases[phase.String()] = p
	}
	l.Key("phases")
	l.Append(func(dst []byte) []byte { return appendJSON(dst, phases) })
	r.mark(resource.Measured, "duration_ns")
	r.put(resource.KindSessionEnd, resource.Computed)
}

// appendJSON is for what is written once.
func appendJSON(dst []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, text...)
}
