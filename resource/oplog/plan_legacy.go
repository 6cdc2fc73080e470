package oplog

import (
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/jsonl"
)

// legacyWork is what system B's formulas give for nodes together.
type legacyWork struct {
	gflop float64
	us    int64
}

// estimate works out what system B would have written of node i.
func (p *plan) estimate(i int, o *resource.Op, w work) {
	n := &p.graph.Nodes[i]
	name := resource.LegacyOperation(o.Name)
	gflop := resource.LegacyGFLOP(name, o.Src[0].NE, o.Src[1].NE)
	us := resource.LegacyDurationUS(name, gflop)
	elements := o.Out.Elements()
	var l jsonl.Line
	l.Begin()
	l.Float("compute_intensity_gflops", gflop)
	l.Int("estimated_duration_us", us)
	l.Int("parallelism_factor", int64(resource.LegacyParallelism(elements)))
	l.Float("memory_throughput_gbps", resource.LegacyBandwidth(name, w.read+w.written, resource.LegacyRatio(gguf.Type(n.Type).String())))
	l.Float("sm_utilization_percent", resource.LegacySM(name, elements))
	p.nodes[i].legacy = inner(&l)
	p.nodes[i].estimated = legacyWork{gflop, us}
}

// estimates sums what system B would have written of those of nodes first to last that have no event of their own.
func (p *plan) estimates(first, last int, level resource.Level) (sum legacyWork) {
	for i := first; i <= last; i++ {
		if n := &p.nodes[i]; n.run >= 0 && !n.own(level) {
			sum.gflop += n.estimated.gflop
			sum.us += n.estimated.us
		}
	}
	return sum
}

// fields adds a sum.
func (s legacyWork) fields(l *jsonl.Line) {
	l.Float("compute_intensity_gflops", s.gflop)
	l.Int("estimated_duration_us", s.us)
}
