package oplog

import (
	"math"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestOpTimes: an op after one that was timed has a time of its own; the first of a graph, and nodes that were
// timed together, a range's. A view after a timed node shows what a probe costs.
func TestOpTimes(t *testing.T) {
	b := newBench(t, Options{Level: resource.Verbose, Roofline: &resource.Roofline{GFLOPsPerS: 100, GBPerS: 10}})
	b.buffers()
	b.check(b.Buffer(&ggmlhooks.Buffer{ID: 4, MonoNS: b.clock + 7, Size: 1000, Usage: ggmlhooks.BufferCompute,
		Type: "CUDA0", Device: "CUDA0"}))
	g := small(1, 1)
	g.Nodes[3].Buffer = 4
	b.check(b.Graph(g))
	// embd, Qcur, its view, attn_out; then both sums and what lies between in one; the rest not at all
	b.run(batch{graph: g, tokens: []int32{1}, nodes: []int32{0, 1, 2, 3, 4, 9},
		times: []int64{1000, 2000, 300, 4000, 500, 6000}})
	_, events := b.lines()
	got := whole(events)
	if len(got) != 6 {
		t.Fatalf("%d compute events", len(got))
	}
	for i, want := range []struct {
		op     string
		nodes  int
		source resource.TimeSource
		ns     int64
	}{
		{"get_rows", 1, resource.TimeRange, 1000}, {"mul_mat", 1, resource.TimeOp, 2000},
		{"mul_mat", 1, resource.TimeOp, 4000}, {"add", 1, resource.TimeOp, 500},
		{"range", 5, resource.TimeRange, 6000}, {"mul_mat", 1, resource.TimeRange, -1},
	} {
		c := got[i]
		if c.Operation != want.op || c.NodeCount != want.nodes || c.TimeSource != want.source ||
			(c.DurationNS == nil) != (want.ns < 0) || want.ns >= 0 &&
			(*c.DurationNS != want.ns || *c.LookingNS != 300) {
			t.Errorf("event %d: %s, %d nodes by %v; want %+v", i, c.Operation, c.NodeCount, c.TimeSource, want)
		}
	}
	q := got[1]
	if *q.GFLOPsPerS != 2*64*64/2000.0 || math.Abs(*q.GBPerS-(64*68+512)/2000.0) > 1e-5 ||
		math.Abs(*q.RooflineShare-*q.GBPerS/10) > 1e-5 {
		t.Errorf("rates %v GFLOP/s, %v GB/s, share %v", *q.GFLOPsPerS, *q.GBPerS, *q.RooflineShare)
	}
	if o := got[2]; o.GBPerS == nil || o.RooflineShare != nil {
		t.Errorf("%s has %v of the CPU's roofline", o.ResourceID, o.RooflineShare)
	}
	if s := got[4]; s.ComponentType != "several" || s.LayerID != -1 {
		t.Errorf("nodes of several components: %s, layer %d", s.ComponentType, s.LayerID)
	}
	if n := got[5]; n.Name != "result_output" || n.GFLOPsPerS != nil || n.Source != resource.Computed ||
		n.FLOPs == nil {
		t.Errorf("not timed: %+v", n)
	}
	ended := 0
	for _, c := range of[resource.ComponentEnd](events) {
		if c.ComponentType == "mlp" || c.ComponentType == "output" {
			t.Errorf("%s has a time of its own", c.ComponentType)
		}
		ended++
	}
	if graph := of[resource.Graph](events)[0]; ended != 3 || *graph.TimedNS != 13500 || *graph.LookingNS != 300 ||
		graph.Looks != 6 || len(of[resource.LayerEnd](events)) != 0 {
		t.Errorf("%d components, graph %+v", ended, graph)
	}
}

// TestSharedTimes: where nodes of several components were timed together, or not at all, their work is still reported
// once, nothing that begins does not end, and every time lies within the recording.
func TestSharedTimes(t *testing.T) {
	for _, level := range []resource.Level{resource.Detailed, resource.Verbose} {
		for _, nodes := range [][]int32{{0, 1, 2, 3, 4, 9}, {5}, {10}, {3, 6, 10}, {0, 3, 4, 8, 9, 10}, {9, 10}} {
			b := newBench(t, Options{Level: level})
			g := small(1, 1)
			b.check(b.Graph(g))
			b.run(batch{graph: g, tokens: []int32{1}, nodes: nodes, times: same(len(nodes), 1000)})
			lines, events := b.lines()
			n := kinds(lines)
			if n["layer_begin"] != n["layer_end"] || n["component_begin"] != n["component_end"] {
				t.Errorf("%v, looks at %v: %v", level, nodes, n)
			}
			computed, flops := 0, int64(0)
			for _, c := range whole(events) {
				computed += c.NodeCount
				flops += *c.FLOPs
			}
			if graph := of[resource.Graph](events)[0]; computed != 10 || flops != *graph.FLOPs {
				t.Errorf("%v, looks at %v: %d nodes of 10, %d FLOPs of %d", level, nodes, computed, flops, *graph.FLOPs)
			}
			for _, h := range of[resource.Handoff](events) {
				if h.MonoNS < beginning {
					t.Errorf("%v, looks at %v: a hand-over at %d", level, nodes, h.MonoNS)
				}
			}
		}
	}
}

// TestSteadyState: an execution at VERBOSE allocates nothing once the memory is there.
func TestSteadyState(t *testing.T) {
	testenv.NotWithRace(t)
	b := newBench(t, Options{Level: resource.Verbose})
	step := steady(b)
	for range 50 {
		step()
	}
	b.out.Grow(64 << 20)
	if n := testing.AllocsPerRun(200, step); n > 0 {
		t.Errorf("%v allocations per execution", n)
	}
}

// steady returns what executes a graph of one token with every op timed, without the tap's own allocations.
func steady(b *bench) func() {
	g := small(1, 1)
	b.check(b.Graph(g))
	times := ggmlhooks.Times{Graph: 1}
	for i, n := range computed(g) {
		times.Nodes = append(times.Nodes, ggmlhooks.NodeTime{Node: n, DoneNS: int64(i+1) * 1000,
			LeftNS: int64(i+1) * 1000})
	}
	e := ggmlhooks.Exec{Graph: 1, Tokens: []int32{1}, Pos: []int32{0}, Outputs: []int32{0}}
	return func() {
		e.Number++
		e.MonoNS += 50_000
		times.Exec, times.BeginNS = e.Number, e.MonoNS
		b.check(b.Exec(&e))
		b.check(b.Times(&times))
		b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: e.Number, MonoNS: e.MonoNS + 20_000, BeginNS: e.MonoNS}))
	}
}

// BenchmarkVerbose is one execution of ten ops, each with its time.
func BenchmarkVerbose(b *testing.B) {
	t := newBench(b, Options{Level: resource.Verbose})
	step := steady(t)
	b.ReportAllocs()
	for range b.N {
		step()
		if t.out.Len() > 1<<26 {
			t.out.Reset()
		}
	}
}

// BenchmarkGraph is the working out of a graph of 40 layers.
func BenchmarkGraph(b *testing.B) {
	t := newBench(b, Options{Level: resource.Verbose})
	g := small(1, 1)
	layer := g.Nodes[1:11]
	for i := 1; i < 40; i++ {
		for _, n := range layer {
			n.Layer = i
			n.Src = slices.Clone(n.Src)
			for k, s := range n.Src {
				if s >= 0 {
					n.Src[k] = s + int32(10*i)
				}
			}
			g.Nodes = append(g.Nodes, n)
		}
	}
	b.ReportAllocs()
	for range b.N {
		t.check(t.Graph(g))
	}
	b.ReportMetric(float64(len(g.Nodes)), "nodes")
}
