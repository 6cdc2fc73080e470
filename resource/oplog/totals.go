package oplog

import (
	"encoding/json"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// totals are those of the session.
type totals struct {
	*writer
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

// open writes the first two events.
func (t *totals) open(o *Options) {
	t.noteTime(t.start)
	t.begin(resource.KindSessionStart, t.start, noCtx)
	t.String("level", t.level().String())
	t.Int("events_version", resource.Version)
	if o.Threads > 0 {
		t.Int("threads", int64(o.Threads))
	}
	if roof := o.Roofline; roof != nil {
		t.Open("roofline")
		t.Float("gflops_per_s", roof.GFLOPsPerS)
		t.Float("gb_per_s", roof.GBPerS)
		t.Shut()
	}
	t.put(resource.Measured)
	t.begin(resource.KindTrackingBegin, t.start, noCtx)
	t.put(resource.Measured)
}

// count adds an execution to the totals, whatever is recorded of it. One that failed has its time, and no work.
func (t *totals) count(x *execution) {
	p := t.phase(x.Phase)
	t.graphs++
	p.Graphs++
	p.DurationNS += x.finish() - x.BeganNS()
	if x.Failed() {
		return
	}
	sum := x.plan.sums[len(x.plan.nodes)]
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

// close writes the totals and the last event.
func (t *totals) close(mono int64, m *memory, rejected int64) {
	mono = max(mono, t.newest.Load())
	t.noteTime(mono)
	l, stats := &t.Line, t.out.Stats()
	t.begin(resource.KindSummary, mono, noCtx)
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
	t.mark(resource.Measured, "total_memory_mb", "peak_live_bytes", "allocated_bytes", "freed_bytes", "graphs",
		"tokens", "events")
	t.put(resource.Computed)
	t.begin(resource.KindSessionEnd, mono, noCtx)
	t.measured("duration_ns", mono-t.start)
	if rejected > 0 {
		t.measured("rejected", rejected)
	}
	phases := map[string]*resource.PhaseTotals{}
	for phase, p := range t.phases {
		phases[phase.String()] = p
	}
	l.Key("phases")
	l.Append(func(dst []byte) []byte { return appendJSON(dst, phases) })
	t.put(resource.Computed)
}

// appendJSON is for what is written once.
func appendJSON(dst []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, text...)
}
