package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// layerSpan is a layer's runs so far. It records when the layer began and ended.
type layerSpan struct {
	*writer
	layer          int
	beganNS, endNS int64
	ns             int64 // sum of its runs; -1 = not all were measured by themselves
	work           work
}

func (s *layerSpan) add(x *execution, run int) {
	p, of := &x.plan.runs[run], x.spans[run]
	s.work = s.work.minus(work{}.minus(x.work(p.first, p.last)))
	if of.ns < 0 || s.ns < 0 {
		s.ns = -1
		return
	}
	s.ns += of.ns
	s.endNS = of.end
}

// start records that a layer begins with a run, where all its runs were measured by themselves.
func (s *layerSpan) start(x *execution, run int) {
	if s.layer == ggmlhooks.NoLayer {
		return
	}
	for ; run < len(x.spans) && x.plan.runs[run].layer == s.layer; run++ {
		if x.spans[run].ns < 0 {
			return
		}
	}
	s.begin(resource.KindLayerBegin, s.beganNS, int64(x.Ctx))
	s.Uint("exec", x.Number)
	s.Int("layer_id", int64(s.layer))
	s.put(resource.Measured)
}

// end records that a layer ended, where all its runs were measured by themselves.
func (s *layerSpan) end(x *execution) {
	if s.layer == ggmlhooks.NoLayer || s.ns < 0 {
		return
	}
	s.begin(resource.KindLayerEnd, s.endNS, int64(x.Ctx))
	s.Uint("exec", x.Number)
	s.Int("layer_id", int64(s.layer))
	s.measured("duration_us", s.ns/1000)
	s.measured("duration_ns", s.ns)
	if s.work.noBytes == 0 {
		s.Float("layer_memory_mb", float64(s.work.read+s.work.written)/mib)
	}
	if s.work.known() {
		s.Float("layer_compute_gflops", float64(s.work.flops)/1e9)
	}
	s.Int("memory_operations", int64(s.work.moves))
	s.Int("compute_operations", int64(s.work.nodes-s.work.moves))
	s.put(resource.Computed)
}
