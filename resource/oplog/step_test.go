package oplog

import (
	"reflect"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// TestModelMetrics: a context and its model are reported once, with the buffers that there are; LRI's estimate
// stands next to them only where it was asked for, and is marked.
func TestModelMetrics(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		_, events := scene(t, Options{Level: resource.Minimal, Legacy: legacy}).lines()
		all := of[resource.Model](events)
		if len(all) != 1 {
			t.Fatalf("%d are reported", len(all))
		}
		m := all[0]
		if want := (resource.ModelInfo{NVocab: 100, NCtxTrain: 2048, NEmbd: 64, NLayer: 1, NHead: 4, NHeadKV: 2,
			NParams: 5e6, ModelSizeMB: 5}); m.Model != want {
			t.Errorf("%+v", m.Model)
		}
		if want := (resource.ContextInfo{NCtx: 256, NBatch: 256, NUBatch: 64, NSeqMax: 1}); m.Context != want {
			t.Errorf("%+v", m.Context)
		}
		if m.Memory.WeightsBytes != 8<<20 || m.Memory.ComputeBytes != 1000 || m.Memory.OtherBytes != 0 ||
			m.Memory.ModelSizeBytes != 5<<20 {
			t.Errorf("%+v", m.Memory)
		}
		if estimate := m.Memory.ContextEstimate; legacy != (estimate != nil) || legacy &&
			(*estimate != 256*64*1*2*4 || m.Source != resource.Estimated ||
				m.Sources["model_info"] != resource.Measured) || !legacy && m.Source != resource.Measured {
			t.Errorf("%+v, %v", m.Memory, m.Source)
		}
	}
}

// TestSteps: each execution is a step, with what graph_execution says of it; every tensor of a context is reported
// before the first step that uses it ends, once.
func TestSteps(t *testing.T) {
	_, events := scene(t, Options{Level: resource.Verbose}).lines()
	graphs, begins, ends := of[resource.Graph](events), of[resource.StepBegin](events), of[resource.StepEnd](events)
	if len(graphs) != 3 || len(begins) != 3 || len(ends) != 3 {
		t.Fatalf("%d graphs, %d steps begin, %d end", len(graphs), len(begins), len(ends))
	}
	for i, g := range graphs {
		b, e := begins[i], ends[i]
		if b.Exec != g.Exec || e.Exec != g.Exec || b.StepName != g.Phase || e.StepName != g.Phase ||
			b.MonoNS != g.MonoNS || e.MonoNS <= b.MonoNS {
			t.Errorf("step %+v to %+v of %+v", b, e, g)
		}
		ns := e.MonoNS - b.MonoNS
		if *e.DurationMS != float64(ns)/1e6 || e.Metrics.Tokens != g.Tokens || *e.Metrics.FLOPs != *g.FLOPs ||
			*e.Metrics.BytesRead != *g.BytesRead || *e.Metrics.BytesWritten != *g.BytesWritten {
			t.Errorf("%+v, of %+v", e, g)
		}
		if rate := *e.Metrics.TokensPerS; rate < 0.99e9*float64(g.Tokens)/float64(ns) ||
			rate > 1.01e9*float64(g.Tokens)/float64(ns) {
			t.Errorf("%v tokens/s", rate)
		}
	}
	seen := map[string]*resource.TensorInfo{}
	for _, m := range of[resource.TensorInfo](events) {
		if seen[m.Metadata.Name] != nil || m.Exec != graphs[0].Exec || m.StepName != "prefill" ||
			m.Metadata.Timestamp != m.Timestamp {
			t.Errorf("%+v", m)
		}
		seen[m.Metadata.Name] = m
	}
	g := small(1, 3)
	for i := range g.Leafs {
		l := &g.Leafs[i]
		m := seen[l.Name]
		if m == nil || m.Role == "result" || m.Metadata.Operation != "NONE" ||
			!slices.Equal(m.Metadata.Shape, shape(l.NE)) || *m.Metadata.MemoryBytes != sizeOf(l.Type, l.NE) {
			t.Errorf("%s: %+v", l.Name, m)
		}
	}
	for _, i := range computed(g) {
		n := &g.Nodes[i]
		m := seen[n.Name]
		if m == nil || m.Role != "result" || m.LayerID != n.Layer || m.Metadata.Operation != n.Op ||
			m.Metadata.ElementCount != n.NE[0]*n.NE[1]*n.NE[2]*n.NE[3] || m.Metadata.DType != "f32" {
			t.Errorf("%s: %+v", n.Name, m)
		}
	}
	if m := seen["blk.0.ffn_up.weight"]; m == nil || m.Role != "weight" || m.LayerID != 0 ||
		!reflect.DeepEqual(m.Metadata.Shape, []int64{64, 128}) {
		t.Errorf("%+v", m)
	}
}
