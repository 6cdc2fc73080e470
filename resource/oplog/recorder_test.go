package oplog

import (
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

// scene is a prompt of three tokens and two generated ones, recorded at a level.
func scene(t testing.TB, o Options) *bench {
	b := newBench(t, o)
	b.buffers()
	b.check(b.Assembler.Context(&ggmlhooks.Context{
		ModelBytes: 5 << 20, ModelParams: 5e6, NCtx: 256, NBatch: 256, NUBatch: 64, NSeqMax: 1, NLayer: 1, NEmbd: 64,
		NHead: 4, NHeadKV: 2, NVocab: 100, NCtxTrain: 2048,
	}))
	prompt, decode := small(1, 3), small(2, 1)
	b.check(b.Graph(prompt))
	nodes := func(g *ggmlhooks.Graph) []int32 {
		switch b.r.Level() {
		case resource.Detailed:
			return ends(g)
		case resource.Verbose:
			return computed(g)
		}
		return nil
	}
	run := func(g *ggmlhooks.Graph, read bool, tokens ...int32) {
		n := nodes(g)
		m := batch{graph: g, tokens: tokens, read: read, nodes: n}
		if n != nil {
			m.times = same(len(n), 7000)
		}
		b.run(m)
		b.check(b.Sample(&ggmlhooks.Sample{MonoNS: b.clock, Token: 7, InSize: 100, OutSize: 2,
			Top: []ggmlhooks.Candidate{{Token: 7, Logit: 2.5, P: 0.75}, {Token: 8, Logit: 1.5, P: 0.25},
				{Token: 9, Logit: float32(math.Inf(-1))}}}))
	}
	run(prompt, false, 4, 5, 6)
	b.check(b.Graph(decode))
	run(decode, true, 7)
	run(decode, true, 8)
	b.check(b.BufferEnd(ggmlhooks.BufferEnd{ID: 2, MonoNS: b.clock}))
	b.check(b.BufferEnd(ggmlhooks.BufferEnd{ID: 3, MonoNS: b.clock}))
	b.clock += 1000
	return b
}

// TestLevels is the matrix of docs/EVENTS.md.
func TestLevels(t *testing.T) {
	counts := map[resource.Level]map[string]int{
		resource.Minimal: {
			"resource_session_start": 1, "resource_tracking_begin": 1, "resource_session_summary": 1,
			"resource_session_end": 1,
			"memory_allocation":    1, "phase": 2, "input_tokens": 1, "output_token": 2, "compute_execution": 3 + 3*6,
			"graph_execution": 3, "model_metrics": 1,
		},
		resource.Detailed: {
			"resource_session_start": 1, "resource_tracking_begin": 1, "resource_session_summary": 1,
			"resource_session_end": 1,
			"memory_allocation":    2 + 7, "memory_deallocation": 1, "phase": 2, "input_tokens": 1, "output_token": 2,
			"layer_begin": 3, "layer_end": 3, "component_begin": 18, "component_end": 18, "compute_execution": 18 + 3*7,
			"component_handoff": 18,
			"mlp_operation":     12, "graph_execution": 3, "model_metrics": 1,
		},
	}
	verbose := maps.Clone(counts[resource.Detailed])
	verbose["compute_execution"], verbose["sampling_state"] = 3*10, 3
	verbose["step_begin"], verbose["step_end"], verbose["tensor_metadata"] = 3, 3, len(small(1, 3).Leafs)+10
	counts[resource.Verbose] = verbose
	for level, want := range counts {
		b := scene(t, Options{Level: level, Text: texts})
		lines, events := b.lines()
		for _, s := range of[resource.Sampling](events) { // what the chain ruled out is no candidate
			if !slices.Equal(s.Sampling.TopTokens, []int32{7, 8}) ||
				!slices.Equal(s.Sampling.TopProbs, []float32{0.75, 0.25}) || *s.Sampling.SelectedProb != 0.75 {
				t.Errorf("%+v", s.Sampling)
			}
		}
		if got := kinds(lines); !maps.Equal(got, want) {
			t.Errorf("%v has %v\nwant %v", level, got, want)
		}
		for kind := range want {
			k, err := resource.ParseKind(kind)
			if err != nil || !level.Includes(k) {
				t.Errorf("%v has %s, which its table does not have", level, kind)
			}
		}
		for _, c := range of[resource.Compute](events) {
			if want := map[resource.Level]resource.TimeSource{resource.Minimal: resource.TimeGraph,
				resource.Detailed: resource.TimeRange,
				resource.Verbose:  resource.TimeOp}[level]; c.TimeSource != want && c.OpSeq != 0 && c.Within == "" {
				t.Errorf("%v times by %v", level, c.TimeSource)
			}
		}
	}
}

// TestWorkIsToldOnce: at every level, compute events have the work of every node, once; times are inside of those
// of their graph.
func TestWorkIsToldOnce(t *testing.T) {
	matrix := int64(64*64*2 + 64*128*3 + 64*100)
	perToken := 2*matrix + 2*64 + 5*128
	for _, level := range []resource.Level{resource.Minimal, resource.Detailed, resource.Verbose} {
		b := scene(t, Options{Level: level})
		_, events := b.lines()
		flops, read, written, nodes := map[uint64]int64{}, map[uint64]int64{}, map[uint64]int64{}, map[uint64]int{}
		ns, work := map[uint64]int64{}, map[uint64]float64{}
		for _, c := range of[resource.Compute](events) {
			work[c.Exec] += *c.GFLOP
			if c.Within != "" { // its range or graph has its time and the rest
				if c.DurationNS != nil || c.FLOPs != nil || len(c.InputTensors) == 0 || len(c.OutputShape) == 0 ||
					level == resource.Verbose {
					t.Errorf("%v: %+v", level, c)
				}
				continue
			}
			flops[c.Exec] += *c.FLOPs
			read[c.Exec] += *c.BytesRead
			written[c.Exec] += *c.BytesWritten
			nodes[c.Exec] += c.NodeCount
			ns[c.Exec] += *c.DurationNS
		}
		for _, g := range of[resource.Graph](events) {
			tokens := int64(g.Tokens)
			if flops[g.Exec] != perToken*tokens || *g.FLOPs != flops[g.Exec] || nodes[g.Exec] != 10 ||
				g.NodeCount != 10 {
				t.Errorf("%v, execution %d: %d FLOPs in %d nodes, graph %d in %d; want %d", level, g.Exec,
					flops[g.Exec], nodes[g.Exec], *g.FLOPs, g.NodeCount, perToken*tokens)
			}
			if math.Abs(work[g.Exec]*1e9/float64(*g.FLOPs)-1) > 1e-4 {
				t.Errorf("%v, execution %d: %g GFLOP in LRI's key, %d FLOPs", level, g.Exec, work[g.Exec],
					*g.FLOPs)
			}
			weights := matrix/32*34 + 68*tokens // the rows used of the embedding, the rest whole
			if read[g.Exec] != *g.BytesRead || written[g.Exec] != *g.BytesWritten || read[g.Exec] < weights ||
				read[g.Exec] > weights+tokens*8000 {
				t.Errorf("%v, execution %d: %d bytes read, %d written, graph %d and %d", level, g.Exec, read[g.Exec],
					written[g.Exec], *g.BytesRead, *g.BytesWritten)
			}
			if ns[g.Exec] > *g.DurationNS || ns[g.Exec] == 0 || level > resource.Minimal && *g.TimedNS != ns[g.Exec] {
				t.Errorf("%v, execution %d: %d ns inside of %d", level, g.Exec, ns[g.Exec], *g.DurationNS)
			}
		}
		layers, components := int64(0), int64(0)
		for _, l := range of[resource.LayerEnd](events) {
			layers += l.DurationNS
			if l.MemoryOperations != 0 || l.ComputeOperations != 8 || l.MonoNS <= beginning {
				t.Errorf("%v: layer %+v", level, l)
			}
		}
		for _, c := range of[resource.ComponentEnd](events) {
			if c.LayerID >= 0 {
				components += c.DurationNS
			}
		}
		if layers != components || level > resource.Minimal && layers == 0 {
			t.Errorf("%v: %d ns of layers, %d of their components", level, layers, components)
		}
		end := of[resource.SessionEnd](events)[0]
		sum := int64(0)
		for _, p := range end.Phases {
			sum += p.DurationNS
		}
		if sum > end.DurationNS || sum <= 0 || end.Phases["prefill"].Tokens != 3 || end.Phases["decode"].Graphs != 2 {
			t.Errorf("session of %d ns: %+v", end.DurationNS, end.Phases)
		}
		total := of[resource.Summary](events)[0]
		if total.FLOPs != 5*perToken || total.Tokens != 5 || total.PeakLiveBytes != 8<<20+1000 ||
			total.FreedBytes != 1000 || total.ComponentFlows != 18 {
			t.Errorf("totals %+v", total)
		}
	}
}

// TestSetUpIsSetUp: what was thrown away is recorded as set-up once that is known, without tokens; what stays, as the
// run.
func TestSetUpIsSetUp(t *testing.T) {
	b := newBench(t, Options{})
	g := small(1, 2)
	b.check(b.Graph(g))
	warm := b.run(batch{graph: g, tokens: []int32{9, 9}, provisional: true})
	if countGraphs(b) != 0 {
		t.Errorf("an undecided execution was recorded")
	}
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: warm, Discarded: true}))
	b.next = 0
	b.run(batch{graph: g, tokens: []int32{1, 2}, provisional: true})
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: b.exec}))
	last := b.run(batch{graph: g, tokens: []int32{3, 4}, provisional: true})
	_, events := b.lines() // the end decides about the last
	var phases []string
	for _, g := range of[resource.Graph](events) {
		phases = append(phases, g.Phase)
	}
	if !slices.Equal(phases, []string{"setup", "prefill", "prefill"}) || len(of[resource.InputTokens](events)) != 2 ||
		last != 3 {
		t.Errorf("phases %q, %d inputs", phases, len(of[resource.InputTokens](events)))
	}
	if end := of[resource.SessionEnd](events)[0]; end.Phases["setup"].Graphs != 1 || end.Phases["prefill"].Tokens != 4 {
		t.Errorf("%+v", end.Phases)
	}
	if p := of[resource.Phase](events); len(p) != 2 || p[0].Phase != "setup" || p[1].Phase != "prefill" ||
		p[1].Previous != "setup" {
		t.Errorf("phases %+v", p)
	}
}

// TestManyUndecided: what had to be recorded before it was decided is taken back by a phase event.
func TestManyUndecided(t *testing.T) {
	b := newBench(t, Options{})
	g := small(1, 1)
	b.Assembler = ggmlhooks.NewAssembler(1, b.r) // nothing is held back
	b.check(b.Graph(g))
	for range 5 {
		b.run(batch{graph: g, tokens: []int32{1}, provisional: true})
	}
	if n := countGraphs(b); n != 5 {
		t.Errorf("%d executions are recorded", n)
	}
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: b.exec, Discarded: true}))
	_, events := b.lines()
	var taken *resource.Phase
	for _, p := range of[resource.Phase](events) {
		if p.LastExec != nil {
			taken = p
		}
	}
	if taken == nil || taken.Exec != 1 || *taken.LastExec != 5 || taken.Phase != "setup" ||
		len(of[resource.Graph](events)) != 5 {
		t.Errorf("taken back: %+v", taken)
	}
}

func TestUnknownOp(t *testing.T) {
	b := newBench(t, Options{Level: resource.Verbose})
	g := small(1, 1)
	g.Nodes[4].Op = "CUSTOM"
	b.check(b.Graph(g))
	n := computed(g)
	b.run(batch{graph: g, tokens: []int32{1}, nodes: n, times: same(len(n), 1000)})
	_, events := b.lines()
	for _, c := range whole(events) {
		if c.Operation == "custom" && (c.FLOPs != nil || c.OpsWithoutFLOPs != 1 || c.GFLOP != nil ||
			c.GFLOPsPerS != nil || c.BytesRead == nil) {
			t.Errorf("%+v", c)
		}
	}
	if s := of[resource.Summary](events)[0]; s.OpsWithoutFLOPs != 1 ||
		of[resource.Graph](events)[0].OpsWithoutFLOPs != 1 {
		t.Errorf("%+v", s)
	}
}

func TestLevelChanges(t *testing.T) {
	b := newBench(t, Options{})
	g := small(1, 1)
	b.check(b.Graph(g))
	n := computed(g)
	one := batch{graph: g, tokens: []int32{1}, read: true, nodes: n, times: same(len(n), 1000)}
	b.run(one)
	b.r.SetLevel(resource.Verbose, b.clock)
	b.r.SetLevel(resource.Verbose, b.clock)
	b.run(one)
	b.r.SetLevel(resource.Off, b.clock)
	b.run(one)
	b.r.SetLevel(resource.Minimal, b.clock)
	b.run(one)
	_, events := b.lines()
	changes := of[resource.LevelChange](events)
	if len(changes) != 3 || changes[0].Level != resource.Verbose || changes[1].Level != resource.Off ||
		changes[2].Previous != resource.Off {
		t.Errorf("changes %+v", changes)
	}
	by := map[uint64]int{}
	for _, c := range whole(events) {
		by[c.Exec]++
	}
	if !maps.Equal(by, map[uint64]int{1: 1, 2: 10, 4: 1}) || of[resource.Summary](events)[0].Graphs != 4 {
		t.Errorf("compute events by execution: %v", by)
	}
}

func TestAsyncHasNoTime(t *testing.T) {
	b := newBench(t, Options{})
	g := small(1, 1)
	b.check(b.Graph(g))
	b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, Tokens: []int32{1}, MonoNS: 5}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 1, MonoNS: 50, BeginNS: 6, Async: true}))
	_, events := b.lines()
	if c, g := whole(events)[0], of[resource.Graph](events)[0]; c.DurationNS != nil || g.DurationNS != nil ||
		c.GFLOPsPerS != nil || c.FLOPs == nil {
		t.Errorf("%+v %+v", c, g)
	}
}

// TestGPU: samples of GPUs are events of their own, each once, whatever is computed; the first has no window, and a
// counter that is not there no figure.
func TestGPU(t *testing.T) {
	waiting := []GPUReading{
		{MonoNS: 7, Sample: nvml.Sample{Name: "one", GPUPercent: 87, MemoryPercent: 41, UsedBytes: 3 << 30,
			TotalBytes: 64 << 30, SMMHz: 1755, MemoryMHz: 2619, PCIeTxKBPerS: 0, PCIeRxKBPerS: -1, PowerMW: 250_500}},
		{MonoNS: 1e9 + 7, WindowNS: 1e9, Index: 1, WindowJ: 2.5, EnergySource: resource.EnergyCounter,
			Sample: nvml.Sample{Name: "two", GPUPercent: 3, MemoryPercent: -1, UtilizationNS: 5e8, UsedBytes: -1,
				TotalBytes: -1, SMMHz: -1, MemoryMHz: -1, PCIeTxKBPerS: -1, PCIeRxKBPerS: -1, PowerMW: -1}},
		{MonoNS: 2e9 + 7, WindowNS: 1e9, Index: 1, WindowJ: 3.5, EnergySource: resource.PowerSamples,
			Sample: nvml.Sample{Name: "two", GPUPercent: -1, MemoryPercent: -1, UsedBytes: -1, TotalBytes: -1,
				SMMHz: -1, MemoryMHz: -1, PCIeTxKBPerS: -1, PCIeRxKBPerS: -1, PowerMW: 3500}},
	}
	b := newBench(t, Options{Devices: func(to *Readings) {
		to.GPUs = append(to.GPUs, waiting...)
		waiting = nil
	}})
	b.check(b.Graph(small(1, 1)))
	for n := range uint64(3) {
		b.check(b.Exec(&ggmlhooks.Exec{Number: n, Graph: 1, Tokens: []int32{1}, MonoNS: 5}))
		b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: n, MonoNS: 50, BeginNS: 6, Async: n%2 == 0}))
	}
	_, events := b.lines()
	got := of[resource.GPUSample](events)
	if len(got) != 3 {
		t.Fatalf("%d samples", len(got))
	}
	if g := got[0]; g.MonoNS != 7 || g.WindowNS != nil || *g.Utilization != 87 || *g.MemoryUtilization != 41 ||
		g.UtilizationNS != nil || g.UtilizationSource != "last_period" || *g.MemoryUsed != 3<<30 ||
		*g.SMClockMHz != 1755 || *g.MemoryClockMHz != 2619 || *g.PCIeTxKBPerS != 0 || g.PCIeRxKBPerS != nil ||
		*g.PCIeWindowNS != 20e6 || *g.PowerW != 250.5 || g.EnergyJ != nil || g.EnergySource != "" ||
		g.Source != resource.Measured {
		t.Errorf("%+v", g)
	}
	if g := got[1]; *g.WindowNS != 1e9 || g.Index != 1 || g.Name != "two" || *g.UtilizationNS != 5e8 ||
		g.UtilizationSource != "samples" || g.MemoryUtilization != nil || g.MemoryUsed != nil || g.MemoryTotal != nil ||
		g.SMClockMHz != nil || g.MemoryClockMHz != nil || g.PCIeTxKBPerS != nil || g.PCIeWindowNS != nil ||
		g.PowerW != nil || *g.EnergyJ != 2.5 || g.EnergySource != "energy_counter" || g.Source != resource.Measured {
		t.Errorf("%+v", g)
	}
	if g := got[2]; g.Utilization != nil || g.UtilizationSource != "" || *g.EnergyJ != 3.5 ||
		g.EnergySource != "power_samples" || g.Source != resource.Computed ||
		g.Sources["gpu_power_w"] != resource.Measured || g.Sources["gpu_energy_j"] != 0 {
		t.Errorf("%+v", g)
	}
}

// TestFailed: of a graph that was given up, or failed, nobody knows what was computed.
func TestFailed(t *testing.T) {
	b := newBench(t, Options{Level: resource.Detailed})
	b.check(b.Graph(small(1, 1)))
	b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, Tokens: []int32{1}, MonoNS: 5}))
	b.check(b.Times(&ggmlhooks.Times{Exec: 1, Graph: 1, BeginNS: 6,
		Nodes: []ggmlhooks.NodeTime{{Node: 1, DoneNS: 10, LeftNS: 10}}}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 1, MonoNS: 50, BeginNS: 6, Status: 1}))
	lines, events := b.lines()
	g, s := of[resource.Graph](events)[0], of[resource.Summary](events)[0]
	if g.Status != 1 || g.FLOPs != nil || g.BytesRead != nil || g.TimedNS != nil || *g.DurationNS != 44 ||
		s.FLOPs != 0 || s.Tokens != 0 || s.Graphs != 1 {
		t.Errorf("%+v %+v", g, s)
	}
	if n := kinds(lines); n["compute_execution"]+n["input_tokens"] != 0 {
		t.Errorf("recorded: %v", n)
	}
}

func TestMaintenance(t *testing.T) {
	b := newBench(t, Options{Level: resource.Detailed})
	d := draw(1, 0)
	d.node("ROPE", "k_shift-0", 0, ggmlhooks.ComponentCache, []int64{64, 4}, d.leaf("cache_k_l0", gguf.F16, 64, 4))
	b.check(b.Graph(d.g))
	b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, TokenFirst: -1, MonoNS: 5}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 1, MonoNS: 50, BeginNS: 6}))
	_, events := b.lines()
	if g := of[resource.Graph](events)[0]; g.Phase != "maintenance" || g.TokenFirst != nil || g.Tokens != 0 {
		t.Errorf("%+v", g)
	}
}

// TestLegacy: LRI's keys have its figures and say so; what is measured stands next to them, and says so too.
func TestLegacy(t *testing.T) {
	b := scene(t, Options{Level: resource.Verbose, Legacy: true})
	_, events := b.lines()
	for _, c := range whole(events) {
		if c.Source != resource.Estimated || c.GFLOP == nil || c.DurationUS == nil || *c.DurationUS < 10 ||
			c.Sources["flops"] != resource.Computed || c.Sources["duration_ns"] != resource.Measured {
			t.Errorf("%+v", c)
		}
		if c.Operation == "mul_mat" && (*c.DurationUS != 50 || *c.ParallelismFactor != 4) {
			t.Errorf("%+v", c)
		}
	}
	if h := of[resource.Handoff](events)[0]; h.Source != resource.Estimated || *h.TransferBandwidthGBPS != 400 ||
		h.MemoryPressure != "low" {
		t.Errorf("%+v", h)
	}
	if m := of[resource.MLP](events)[0]; m.ActivationMemoryPeakMB == nil ||
		m.Sources["intermediate_size_mb"] != resource.Computed {
		t.Errorf("%+v", m)
	}
	if a := of[resource.Allocation](events)[0]; *a.CompressionRatio != 1 ||
		a.Sources["allocation_bytes"] != resource.Measured {
		t.Errorf("%+v", a)
	}
	for _, a := range of[resource.Allocation](events) {
		if a.TensorBytes != nil && (a.Sources["tensor_bytes"] != resource.Computed ||
			a.Sources["allocation_size_mb"] != resource.Computed) {
			t.Errorf("the size of a weight is tagged %v", a.Sources)
		}
	}
	_, events = scene(t, Options{Level: resource.Verbose}).lines()
	for _, c := range whole(events) {
		if c.ParallelismFactor != nil || c.SMUtilization != nil || c.Source == resource.Estimated {
			t.Errorf("estimated without being asked for: %+v", c)
		}
	}
}

func TestRateLimitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // within one second
		b := scene(t, Options{Level: resource.Verbose, PerSecond: 5})
		_, events := b.lines()
		if n := len(whole(events)); n != 5 {
			t.Errorf("%d compute events", n)
		}
		lost := map[string]uint64{}
		for _, l := range of[resource.Loss](events) {
			lost[l.Kind] += l.Count
		}
		if lost["compute_execution"] != 25 || of[resource.Summary](events)[0].Lost["rate"] == 0 ||
			len(of[resource.SessionEnd](events)) != 1 {
			t.Errorf("lost %v", lost)
		}
	})
}

// TestSessionStart: a session begins when the run does, which may be long before its first graph makes a recorder.
func TestSessionStart(t *testing.T) {
	const before = 5000
	b := newBench(t, Options{StartNS: beginning - before})
	b.clock += 1000
	_, events := b.lines()
	start, end := of[resource.SessionStart](events), of[resource.SessionEnd](events)
	if len(start) != 1 || start[0].MonoNS != beginning-before || len(end) != 1 || end[0].DurationNS != before+1000 {
		t.Errorf("%+v, %+v", start, end)
	}
}

// TestPhases: the time of a phase is the sum of its graphs' times.
func TestPhases(t *testing.T) {
	_, events := scene(t, Options{Level: resource.Detailed, Text: texts}).lines()
	want := map[string]int64{}
	for _, g := range of[resource.Graph](events) {
		want[g.Phase] += *g.DurationNS
	}
	for phase, total := range of[resource.SessionEnd](events)[0].Phases {
		if total.DurationNS != want[phase] || total.DurationNS == 0 {
			t.Errorf("%s takes %d ns, its graphs %d", phase, total.DurationNS, want[phase])
		}
	}
}

// TestDiskFull: the run goes on, and what is lost is counted.
func TestDiskFull(t *testing.T) {
	r, err := NewRecorder(Options{
		Lines: linesTo(full{}), Now: func() int64 { return 1 }, SessionID: "s", Level: resource.Verbose,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, Assembler: ggmlhooks.NewAssembler(0, r), r: r, clock: 1}
	g := small(1, 1)
	b.check(b.Graph(g))
	n := computed(g)
	for range 100 {
		b.run(batch{graph: g, tokens: []int32{1}, nodes: n, times: same(len(n), 1000)})
	}
	if err := r.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if s := r.Stats(); s.Lost["disk_full"] < s.Lines || s.Lines == 0 {
		t.Errorf("%+v", s)
	}
}

func TestDesync(t *testing.T) {
	b := newBench(t, Options{Level: resource.Verbose})
	if err := b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 9}); !errors.Is(err, ggmlhooks.ErrDesync) {
		t.Errorf("%v", err)
	}
	b.check(b.Graph(small(1, 1)))
	b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, Tokens: []int32{1}}))
	if err := b.Times(&ggmlhooks.Times{Exec: 1, Graph: 1, Nodes: []ggmlhooks.NodeTime{{Node: 99}}}); !errors.Is(err,
		ggmlhooks.ErrDesync) {
		t.Errorf("%v", err)
	}
	b.check(b.Times(&ggmlhooks.Times{Exec: 7}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 7}))
	if _, err := NewRecorder(Options{}); !errors.Is(err, errIncomplete) {
		t.Errorf("%v", err)
	}
	if _, err := NewRecorder(Options{Now: b.r.now, SessionID: "s", Lines: linesTo(nil)}); !errors.Is(err,
		syscall.EACCES) {
		t.Errorf("%v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
func (full) Close() error              { return nil }

var _ io.WriteCloser = full{}

// The CPU computes in the host's memory, also where that is pinned for a GPU.
func TestDeviceOfBuffer(t *testing.T) {
	m := memory{buffers: map[uint64]*buffer{}}
	for id, b := range []ggmlhooks.Buffer{
		{Device: "CPU", Type: "CPU", Host: true}, {Device: "CUDA0", Type: "CUDA_Host", Host: true},
		{Device: "CUDA0", Type: "CUDA0"}, {Host: true},
	} {
		m.buffers[uint64(id)] = &buffer{Buffer: b}
	}
	for id, want := range []string{"CPU", "CPU", "CUDA0", "", ""} {
		if got := m.device(uint64(id)); got != want {
			t.Errorf("buffer %d: %q, want %q", id, got, want)
		}
	}
}
