package oplog

import (
	"strings"

	"github.com/llamatap/llamatap/resource"
)

// Hot path: no allocation per event.

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

// own reports whether a computed node that was not timed by itself has an event of its own at a level.
func (n *nodePlan) own(level resource.Level) bool { return level != resource.Off && n.from <= level }

// ownWork is the FLOPs of those of an execution's nodes first to last that have events of their own.
func (x *execution) ownWork(first, last int) (flops int64) {
	for i := first; i <= last; i++ {
		if n := &x.plan.nodes[i]; n.run >= 0 && n.own(x.level) {
			flops += x.plan.sums[i+1].flops - x.plan.sums[i].flops
		}
	}
	return flops
}

// emitParts records those of nodes first to last that have events of their own, in a range or graph that began at
// a time.
func (r *Recorder) emitParts(x *execution, first, last int, start int64, within resource.TimeSource) {
	for i := first; i <= last; i++ {
		node := &x.plan.nodes[i]
		if node.run < 0 || !node.own(x.level) {
			continue
		}
		l := &r.line
		r.begin(resource.KindCompute, start, int64(x.Ctx))
		r.head.resourceID(l, node.id, start)
		l.Uint("exec", x.Number)
		l.String("phase", x.Phase.String())
		l.Fields(node.fields)
		l.String("within", within.String())
		if w := x.plan.sums[i+1].minus(x.plan.sums[i]); w.known() && !r.o.Legacy {
			l.Float("compute_intensity_gflops", float64(w.flops)/1e9)
		}
		l.Fields(node.legacy)
		r.put(resource.KindCompute, r.weakest())
	}
}
