package resources

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

func summarize(t *testing.T, files map[string]string) *Report {
	t.Helper()
	r, err := Summarize(t.Context(), directory(t, files), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDamage: bad lines are reported by number and reason, a last line without its end too, and the rest is added up.
func TestDamage(t *testing.T) {
	whole := summarize(t, map[string]string{rundir.EventsName: aRun().String()})
	lines := strings.SplitAfter(aRun().String(), "\n")
	lines[3] = "{\"event\":\"compute_execution\",\"exec\":\"three\"}\n"
	lines[5] = "rubbish \x00\xff\n"
	lines[7] = "{\"event\":\"no_such_event\"}\n"
	lines = append(lines, "{\"event\":\"graph_exec")
	r := summarize(t, map[string]string{rundir.EventsName: strings.Join(lines, "")})
	if r.BadLines != 3 || len(r.Bad) != 3 || r.Bad[0].Line != 4 || r.Bad[1].Line != 6 || r.Bad[2].Line != 8 ||
		r.Unfinished != 20 {
		t.Fatalf("%+v, %d unfinished", r.Bad, r.Unfinished)
	}
	for i, want := range []string{"exec", "invalid character", `unknown event "no_such_event"`} {
		if !strings.Contains(r.Bad[i].Reason, want) {
			t.Errorf("line %d: %s", r.Bad[i].Line, r.Bad[i].Reason)
		}
	}
	if r.GraphNS != whole.GraphNS || r.Lines != whole.Lines {
		t.Errorf("%d ns in %d lines", r.GraphNS, r.Lines)
	}
	var text strings.Builder
	r.WriteText(&text)
	for _, want := range []string{"BAD LINE  6: ", "3 lines cannot be read", "20 bytes of a last line"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

// TestLostCacheEvents: where operations on a cache are missing, how full it is is not known, and no number stands
// in for it.
func TestLostCacheEvents(t *testing.T) {
	for _, lost := range []uint64{0, 44} {
		s := aRun()
		if lost > 0 {
			s.put(resource.Loss{Header: s.head(resource.KindLoss), Kind: resource.KindKV.String(), Cause: "rate",
				Count: lost})
		}
		meta := `{"version":1,"created":"2026-11-21T00:00:00Z","losses":[],"contexts":[{"ctx":0,"n_ctx":64}]}`
		r := summarize(t, map[string]string{rundir.EventsName: s.String(), "metadata.json": meta})
		var text strings.Builder
		r.WriteText(&text)
		if c := r.Caches[0]; c.EventsLost != lost || (c.Occupancy == nil) != (lost > 0) ||
			strings.Contains(text.String(), " of 64 cells used") != (lost == 0) {
			t.Errorf("%d lost: %+v\n%s", lost, c, text.String())
		}
	}
}

// TestLevelWithoutCaches: nor is it known where a level leaves such operations out.
func TestLevelWithoutCaches(t *testing.T) {
	for _, level := range []resource.Level{resource.Off, resource.Minimal, resource.Detailed} {
		s := aRun()
		s.put(resource.LevelChange{Header: s.head(resource.KindLevel), Level: level, Previous: resource.Verbose})
		meta := `{"version":1,"created":"2026-11-21T00:00:00Z","losses":[],"contexts":[{"ctx":0,"n_ctx":64}]}`
		r := summarize(t, map[string]string{rundir.EventsName: s.String(), "metadata.json": meta})
		var text strings.Builder
		r.WriteText(&text)
		whole := level == resource.Detailed
		if c := r.Caches[0]; c.Partly == whole || (c.Occupancy != nil) != whole ||
			strings.Contains(text.String(), " of 64 cells used") != whole ||
			strings.Contains(text.String(), "cells used: not known") == whole {
			t.Errorf("%s: %+v\n%s", level, c, text.String())
		}
	}
}

// TestMissedCacheEvents: nor where files of the log are gone, which the metadata of a live run do not say.
func TestMissedCacheEvents(t *testing.T) {
	meta := `{"version":1,"created":"2026-11-21T00:00:00Z","losses":[],"contexts":[{"ctx":0,"n_ctx":64}]}`
	for number, whole := range []bool{true, false} {
		files := map[string]string{rundir.PartName(rundir.EventsName, number): aRun().String(), "metadata.json": meta}
		r := summarize(t, files)
		var text strings.Builder
		r.WriteText(&text)
		if c := r.Caches[0]; c.Partly == whole || (c.Occupancy != nil) != whole ||
			strings.Contains(text.String(), "NOT WHOLE the oldest events were given back") == whole {
			t.Errorf("part %d: %+v\n%s", number, c, text.String())
		}
		l := following(t, r.Path)
		s := l.Snapshot(time.Unix(1_790_000_100, 0))
		if (len(s.Caches) > 0) != whole || l.Sum.CachesWhole() != whole ||
			slices.ContainsFunc(s.Missing, func(m Missing) bool { return m.How == "--tap-kv" }) {
			t.Errorf("part %d: %+v, without %v", number, s.Caches, s.Missing)
		}
	}
}

// TestSteps: tokens that come in one graph, such as drafts that were taken over, have one time together.
func TestSteps(t *testing.T) {
	for _, c := range []struct {
		drafts int64
		want   string
	}{{0, "slowest 5.00 µs of 3\n"}, {6, "slowest 5.00 µs of 3, with 3.0 tokens each\n"}} {
		s := aRun()
		for i := range c.drafts {
			s.put(resource.OutputToken{Header: s.head(resource.KindOutputToken), Exec: s.exec, TokenIndex: 7 + i,
				Pos: int32(7 + i), SeqID: ptr(int32(0))})
		}
		var text strings.Builder
		summarize(t, map[string]string{rundir.EventsName: s.String()}).WriteText(&text)
		if !strings.Contains(text.String(), c.want) ||
			strings.Contains(text.String(), "\nper token ") != (c.drafts == 0) {
			t.Errorf("lacks %q:\n%s", c.want, text.String())
		}
	}
}

// TestAborted: a graph that was aborted, as by Ctrl-C, has a time, and no tokens.
func TestAborted(t *testing.T) {
	s := aRun()
	s.exec++
	s.put(resource.Graph{Header: s.head(resource.KindGraph), Exec: s.exec, Graph: 1, Phase: "decode", Tokens: 1,
		PrefillTokens: ptr(0), DecodeTokens: ptr(1), NodeCount: 7, Status: 1, DurationNS: ptr(int64(500))})
	r := summarize(t, map[string]string{rundir.EventsName: s.String()})
	i := slices.IndexFunc(r.Phases, func(p PhaseRow) bool { return p.Phase == "decode" })
	if p := r.Phases[i]; p.Tokens != 3 || p.Graphs != 4 || *p.NS != 3500 {
		t.Errorf("%d tokens in %d graphs of %d ns", p.Tokens, p.Graphs, *p.NS)
	}
}

// TestAbsence leaves out what was not measured: at MINIMAL there are no components, without clocks there is no time.
func TestAbsence(t *testing.T) {
	s := &script{}
	s.begin(resource.Minimal)
	s.put(resource.Compute{Header: s.head(resource.KindCompute), Exec: 1, Phase: "decode", NodeCount: 9,
		TimeSource: resource.TimeGraph, DurationNS: ptr(int64(5))})
	s.put(resource.Graph{Header: s.head(resource.KindGraph), Exec: 1, Phase: "decode", Tokens: 1, NodeCount: 9,
		DurationNS: ptr(int64(5)), OpsWithoutFLOPs: 2, FLOPs: ptr(int64(10))})
	r := summarize(t, map[string]string{rundir.EventsName: s.String()})
	if r.Coverage != nil || len(r.Components) > 0 || r.GraphNS != 5 || *r.Phases[0].FLOPs != 10 {
		t.Errorf("%+v", r)
	}
	if r.Phases[0].GFLOPsPerS != nil || r.Phases[0].Read != nil || r.Phases[0].NoFLOPs != 2 {
		t.Errorf("a rate of a part: %+v", r.Phases[0])
	}
	s.put(resource.Graph{Header: s.head(resource.KindGraph), Exec: 2, Phase: "decode", Tokens: 1})
	r = summarize(t, map[string]string{rundir.EventsName: s.String()})
	if r.Phases[0].TokensPerS != nil || r.Phases[0].Untimed != 1 || r.Phases[0].Tokens != 2 {
		t.Errorf("one graph was not timed: %+v", r.Phases[0])
	}
	var text strings.Builder
	r.WriteText(&text)
	if !strings.Contains(text.String(), "--tap-resource-level DETAILED") ||
		strings.Contains(text.String(), "attention") {
		t.Errorf("%s", text.String())
	}
}

// TestRetracted: a warm-up was first reported as something else.
func TestRetracted(t *testing.T) {
	s := aRun()
	s.put(resource.Phase{Header: s.head(resource.KindPhase), Phase: "setup", Exec: 1, LastExec: ptr(uint64(2))})
	var text strings.Builder
	summarize(t, map[string]string{rundir.EventsName: s.String()}).WriteText(&text)
	if !strings.Contains(text.String(), "executions 1 to 2 turned out to be set-up") {
		t.Error(text.String())
	}
}

// TestBounds keeps memory bounded whatever a log holds, and the sums right.
func TestBounds(t *testing.T) {
	s := newSum()
	n := int64(1)
	for i := range maxCells + 1000 {
		s.addEvent(&work{Phase: "decode", LayerID: i, Exec: uint64(i), Operation: "ADD", Name: fmt.Sprint("t", i),
			NodeCount: 1, TimeSource: resource.TimeOp, DurationNS: n})
		s.addEvent(&resource.OutputToken{TokenIndex: int64(i), Exec: uint64(i), LatencyNS: &n})
	}
	if len(s.Cells.By) > maxCells || len(s.Tops.By) > maxTops || len(s.execs.byNumber) > maxExecs ||
		int64(len(s.Tokens))+s.TokensMore != maxCells+1000 {
		t.Errorf("%d cells, %d tensors, %d executions, %d tokens and %d", len(s.Cells.By), len(s.Tops.By),
			len(s.execs.byNumber), len(s.Tokens), s.TokensMore)
	}
	s.Phases["decode"] = &PhaseSum{Cost: Cost{NS: 1}}
	if r := s.Report(); r.CoveredNS != maxCells+1000 {
		t.Errorf("%d ns are covered", r.CoveredNS)
	}
}

// TestFirstToken: the time of a prompt is none from token to token, nor is its first token the slowest.
func TestFirstToken(t *testing.T) {
	s := newSum()
	for i, latency := range []int64{9000, 10, 30} {
		s.addEvent(&resource.OutputToken{TokenIndex: int64(i), Exec: uint64(i), LatencyNS: &latency, First: i == 0})
	}
	var slowest strings.Builder
	tokenTable(&slowest, s.Tokens, 0)
	if l := s.Report().Latency; l.Count != 2 || l.MeanNS != 20 || l.Most != 30 || !s.Tokens[0].First ||
		strings.Contains(slowest.String(), "9") {
		t.Errorf("%+v\n%s", l, slowest.String())
	}
}

// TestWorkKeys holds that what is read of a compute_execution are keys of it.
func TestWorkKeys(t *testing.T) {
	of := reflect.TypeFor[resource.Compute]()
	keys := map[string]bool{}
	for i := range of.NumField() {
		key, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		keys[key] = true
	}
	for i := range reflect.TypeFor[work]().NumField() {
		if key := reflect.TypeFor[work]().Field(i).Tag.Get("json"); !keys[key] {
			t.Errorf("%s is no key of a compute_execution", key)
		}
	}
}

// TestTokenProducer: the figures of a token are those of the execution that produced it, the one from whose
// beginning its latency counts: of two sequences that are computed alternately, of two contexts whose graphs begin
// at the same time, and none where it is not in the log.
func TestTokenProducer(t *testing.T) {
	s := newSum()
	graph := func(ctx uint32, exec uint64, entry, took int64) {
		head := resource.Header{Ctx: &ctx, MonoNS: entry}
		s.addEvent(&work{Exec: exec, ComponentType: componentAttention, DurationNS: took / 2,
			TimeSource: resource.TimeOp})
		s.addEvent(&resource.Graph{Header: head, Exec: exec, Phase: "decode", Tokens: 1, DurationNS: &took})
	}
	token := func(ctx uint32, exec uint64, seq int32, entry, latency int64) {
		s.addEvent(&resource.OutputToken{Header: resource.Header{Ctx: &ctx, MonoNS: entry}, Exec: exec, SeqID: &seq,
			LatencyNS: &latency})
	}
	graph(0, 1, 1000, 900) // of sequence 0
	graph(1, 2, 1000, 2)   // another context
	graph(0, 3, 2000, 70)  // of sequence 1
	token(0, 4, 0, 3000, 2000)
	graph(0, 4, 3000, 40)
	token(0, 5, 1, 4000, 2000)
	token(0, 6, 0, 5000, 2000)
	token(0, 7, 0, 9000, 3000)
	want := []struct{ exec, ns int64 }{{1, 900}, {3, 70}, {4, 40}, {}}
	for i, row := range s.Tokens {
		switch w := want[i]; {
		case w.exec == 0:
			if row.GraphExec != nil || row.GraphNS != nil || row.AttentionNS != nil || row.FLOPs != nil {
				t.Errorf("token %d has a graph that is not in the log: %+v", i, row)
			}
		case int64(*row.GraphExec) != w.exec || *row.GraphNS != w.ns || *row.AttentionNS != w.ns/2:
			t.Errorf("token %d: execution %d, %d ns, want %+v", i, *row.GraphExec, *row.GraphNS, w)
		}
	}
	for i := range int64(2 * maxExecs) {
		graph(0, 100+uint64(i), 10_000+i, 1)
	}
	if len(s.execs.byNumber) != maxExecs || len(s.execs.byEntry) != maxExecs {
		t.Errorf("%d and %d executions are kept", len(s.execs.byNumber), len(s.execs.byEntry))
	}
}

// TestMixedBatches: tokens are counted by their own phase, and the rates of phases are those of graphs that have no
// others.
func TestMixedBatches(t *testing.T) {
	s := newSum()
	graph := func(prefill, decode int, took int64) {
		phase := phaseDecode
		if prefill > 0 {
			phase = phasePrefill
		}
		s.addEvent(&resource.Graph{Phase: phase, Tokens: prefill + decode, PrefillTokens: &prefill,
			DecodeTokens: &decode,
			DurationNS:   &took})
	}
	graph(8, 0, 4000)
	graph(5, 3, 9000)
	graph(0, 4, 1000)
	s.addEvent(&resource.Graph{Phase: phaseDecode, Tokens: 1,
		DurationNS: ptr(int64(500))}) // as older versions wrote it
	r := s.Report()
	prefill, decode := r.Phases[0], r.Phases[1]
	if prefill.Tokens != 13 || prefill.Graphs != 2 || prefill.Mixed != 1 || prefill.MixedNS != 9000 ||
		*prefill.NS != 13000 || *prefill.TokensPerS != 2e6 {
		t.Errorf("prefill %+v", prefill)
	}
	if decode.Tokens != 8 || decode.Graphs != 2 || decode.Mixed != 0 || *decode.TokensPerS != 5e9/1500 {
		t.Errorf("decode %+v", decode)
	}
}

// TestFailedGraphs: a graph that was aborted has time, and neither work nor tokens: rates of its phase are those of
// the others, whether it has rows of one phase or of both, and whether it is timed.
func TestFailedGraphs(t *testing.T) {
	work := &resource.Graph{Phase: phaseDecode, Tokens: 4, PrefillTokens: ptr(0), DecodeTokens: ptr(4),
		DurationNS: ptr(int64(1000)), FLOPs: ptr(int64(5000)), BytesRead: ptr(int64(2000)),
		BytesWritten: ptr(int64(1000))}
	for _, c := range []struct {
		prefill int
		ns      *int64
	}{{0, ptr(int64(700))}, {3, ptr(int64(700))}, {0, nil}} {
		s := newSum()
		s.Roofline, s.recent = &resource.Roofline{GFLOPsPerS: 10, GBPerS: 6}, newRecent()
		s.addEvent(work)
		s.addEvent(&resource.Graph{Phase: phaseDecode, Tokens: 4, PrefillTokens: &c.prefill, DecodeTokens: ptr(4),
			DurationNS: c.ns, Status: 1})
		r := s.Report()
		p, lost := r.Phases[0], *cmp.Or(c.ns, new(int64))
		if p.Graphs != 2 || p.Failed != 1 || p.FailedNS != lost || *p.NS != 1000+lost || p.Tokens != 4 {
			t.Errorf("%+v", p)
		}
		if p.TokensPerS == nil || *p.TokensPerS != 4e6 || p.GFLOPsPerS == nil || *p.GFLOPsPerS != 5 ||
			p.GBPerS == nil || *p.GBPerS != 3 || p.Roofline == nil || *p.Roofline != 0.5 {
			t.Errorf("rates of a phase with an aborted graph: %+v", p)
		}
		if n := s.recent.at(0).tokens; n != 4 {
			t.Errorf("%d tokens lately, want 4", n)
		}
	}
}

// TestRejectedDrafts: drafts that were rejected are in the rate of decode only where the graph that verified them is;
// what a draft model computed counts by its own phase.
func TestRejectedDrafts(t *testing.T) {
	s := newSum()
	graph := func(ctx uint32, prefill, decode int, rejected int64) {
		phase := phaseDecode
		if prefill > 0 {
			phase = phasePrefill
		}
		s.addEvent(&resource.Graph{Header: resource.Header{Ctx: &ctx}, Phase: phase, Tokens: prefill + decode,
			PrefillTokens: &prefill, DecodeTokens: &decode, DurationNS: ptr(int64(1000)), Rejected: rejected,
			Drafts: ctx == 1})
	}
	graph(0, 0, 4, 0)
	graph(0, 9, 0, 2) // of the four
	graph(1, 9, 3, 0)
	graph(0, 9, 5, 0)
	graph(0, 9, 0, 0)
	graph(0, 0, 4, 3) // of the five
	s.addEvent(&resource.SessionEnd{Rejected: 1})
	r := s.Report()
	prefill, decode := r.Phases[0], r.Phases[1]
	if prefill.Tokens != 27 || prefill.Drafts != 9 || *prefill.TokensPerS != 9e6 {
		t.Errorf("prefill %+v", prefill)
	}
	if decode.Tokens != 13-6 || decode.Rejected != 6 || decode.Drafts != 3 || *decode.TokensPerS != 5e9/2000 {
		t.Errorf("decode %+v, %v tokens/s", decode, *decode.TokensPerS)
	}
}

// TestUsefulWork: rates are of cells that tokens may read; where that is not known of all there is none, and the
// padded work remains.
func TestUsefulWork(t *testing.T) {
	for _, unknown := range []int{0, 1} {
		s := newSum()
		attention := work{Phase: phaseDecode, Operation: "FLASH_ATTN_EXT", NodeCount: 1, TimeSource: resource.TimeOp,
			DurationNS: 10, LookingNS: -1,
			FLOPs: 4690, FLOPsUnmasked: 279, OpsWithoutMask: unknown, BytesRead: 5, RooflineShare: -1}
		if unknown > 0 {
			attention.FLOPsUnmasked = -1
		}
		product := work{Phase: phaseDecode, Operation: "FLASH_ATTN_EXT", NodeCount: 1, TimeSource: resource.TimeOp,
			DurationNS: 10, FLOPs: 21, FLOPsUnmasked: -1, BytesRead: 5}
		s.addEvent(&attention)
		s.addEvent(&product)
		row := s.Report().Ops[0]
		if *row.FLOPs != 4711 || unknown == 0 != (row.Useful != nil) || unknown == 0 != (row.GFLOPsPerS != nil) ||
			row.GBPerS == nil {
			t.Fatalf("%d unknown: %+v", unknown, row)
		}
		if moved, rate := movedText(&row.Figures), gbText(&row.Figures); moved != "10 B*" ||
			!strings.HasSuffix(rate, "*") {
			t.Errorf("%d unknown: padded bytes are shown as %s, %s GB/s", unknown, moved, rate)
		}
		if unknown == 0 && (*row.Useful != 300 || *row.GFLOPsPerS != 15) {
			t.Errorf("%d of %d FLOPs are useful, %v GFLOP/s", *row.Useful, *row.FLOPs, *row.GFLOPsPerS)
		}
	}
}

func TestBareName(t *testing.T) {
	for name, want := range map[string]string{"ffn_out-3": "ffn_out", "node_30": "node",
		"result_output": "result_output", "Qcur-12": "Qcur", "cache_k_l0": "cache_k_l0", "-3": "-3", "": ""} {
		if got := bareName(name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// TestForeignTimes reads a log of LRI: its times in both forms, its estimates left out.
func TestForeignTimes(t *testing.T) {
	r := summarize(t, map[string]string{rundir.EventsName: `{"event":"resource_session_start",` +
		`"timestamp":"2025-11-21 10:15:00.123","session_id":"x","level":"DETAILED"}` + "\n" +
		`{"event":"compute_execution","resource_id":"r","timestamp":21816123456,"operation":"gemm",` +
		`"component_type":"attention","layer_id":2,"compute_intensity_gflops":0.05,"estimated_duration_us":51}` + "\n"})
	if r.BadLines != 0 || r.Events["compute_execution"] != 1 || r.CoveredNS != 0 || r.Components[0].NS != nil ||
		r.Components[0].Untimed != 1 {
		t.Errorf("%+v %+v", r, r.Components)
	}
}

// FuzzSum adds up whatever lines; what is reported of them is valid, and nothing is lost from the count.
func FuzzSum(f *testing.F) {
	for line := range strings.Lines(aRun().String()) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"event":"level","level":7}`))
	f.Add([]byte(`{"Event":"loss","count":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s := newSum()
		s.Add(Line{Number: 1, Text: line})
		var n int64
		for _, count := range s.Events {
			n += count
		}
		if n+s.BadLines != 1 {
			t.Errorf("%d events and %d bad lines of one", n, s.BadLines)
		}
		var text strings.Builder
		if err := s.Report().WriteText(&text); err != nil || strings.ContainsAny(text.String(), "\x00\x1b") {
			t.Errorf("%v %q", err, text.String())
		}
	})
}

// TestComponentsOfPrograms: what a program reports of itself has times for components alone; the tap's components are
// those of its ops.
func TestComponentsOfPrograms(t *testing.T) {
	s := &script{}
	s.begin(resource.Detailed)
	for layer := range 2 {
		s.put(resource.ComponentEnd{Header: s.head(resource.KindComponentEnd), ComponentType: "attention",
			LayerID: layer, DurationUS: 2, DurationNS: 2500})
	}
	s.put(resource.ComponentEnd{Header: s.head(resource.KindComponentEnd), ComponentType: "mlp", LayerID: 0,
		DurationUS: 7, DurationNS: 7000})
	s.put(resource.ComponentEnd{Header: s.head(resource.KindComponentEnd), Exec: 3, ComponentType: "attention",
		LayerID: 0, DurationUS: 90, DurationNS: 90000})
	r := summarize(t, map[string]string{rundir.EventsName: s.String()})
	times := map[string]int64{}
	for _, c := range r.Components {
		times[c.Component] += *c.NS
	}
	if len(times) != 2 || times["attention"] != 5000 || times["mlp"] != 7000 {
		t.Errorf("%v", times)
	}
	if len(r.Layers) != 2 {
		t.Errorf("%+v", r.Layers)
	}
}

// TestSampled: where some graphs were timed inside, the times of components are those of these graphs, and their
// shares are scaled to all graphs of the phase.
func TestSampled(t *testing.T) {
	s := &script{}
	s.begin(resource.Verbose)
	s.graph("prefill", 4)
	for range 2 {
		s.graph("decode", 1)
	}
	for range 6 {
		s.exec++
		s.put(resource.Compute{Header: s.head(resource.KindCompute), Exec: s.exec, Graph: 1, Operation: "graph",
			ComponentType: "graph", LayerID: -1, Phase: "decode", NodeCount: 7, TimeSource: resource.TimeGraph,
			DurationNS: ptr(int64(1000)), FLOPs: ptr(int64(900))})
		s.put(resource.Graph{Header: s.head(resource.KindGraph), Exec: s.exec, Graph: 1, Phase: "decode", Tokens: 1,
			NodeCount: 7, FLOPs: ptr(int64(900)), DurationNS: ptr(int64(1000))})
	}
	s.end()
	r := summarize(t, map[string]string{rundir.EventsName: s.String()})
	if r.Graphs != 9 || r.GraphNS != 12000 || r.TimedGraphs != 3 || r.TimedNS != 6000 || *r.Coverage != 0.9 {
		t.Errorf("%d graphs of %d ns, %d of them timed, %d ns, %v covered", r.Graphs, r.GraphNS, r.TimedGraphs,
			r.TimedNS, *r.Coverage)
	}
	// Of 1000 ns of a token, attention is timed for 300: of prefill's 4000 and decode's 8000 ns alike.
	attention := r.component(componentAttention)
	if *attention.NS != 1800 || *attention.Share != 0.3 || *attention.GFLOPsPerS != 1 {
		t.Errorf("attention: %d ns, share %v, %v GFLOP/s", *attention.NS, *attention.Share, *attention.GFLOPsPerS)
	}
	for _, row := range r.Top {
		if row.Name == "result_output" && *row.Share != 0.2 {
			t.Errorf("%s has a share of %v", row.Name, *row.Share)
		}
	}
	var text strings.Builder
	r.WriteText(&text)
	for _, want := range []string{"3 of them (6.00 µs) were timed inside", "90.0 % of that", "scaled to all graphs",
		"phase graphs timed inside ", "prefill 1 1 ", "decode 8 2 "} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

// TestUnknownEnds: of prompts in several micro-batches a device's time is not known of each graph, though its nodes
// were timed. Shares and what is attributed are of the graphs whose time is known.
func TestUnknownEnds(t *testing.T) {
	s := &script{}
	s.begin(resource.Verbose)
	s.graph("prefill", 4)
	s.graph("prefill", 4)
	s.graph("decode", 1)
	log, end := s.String(), `"duration_ns":4000,"timed_ns":3600`
	if strings.Count(log, end) != 2 {
		t.Fatalf("no graphs to change:\n%s", log)
	}
	r := summarize(t, map[string]string{rundir.EventsName: strings.Replace(log, end, `"timed_ns":3600`, 1)})
	if r.GraphNS != 5000 || r.TimedGraphs != 2 || r.CoveredNS != 4500 || *r.Coverage != 0.9 || r.LookingNS != 140 {
		t.Errorf("%d ns, of %d graphs, %d covered, %v; looking took %d", r.GraphNS, r.TimedGraphs, r.CoveredNS,
			*r.Coverage, r.LookingNS)
	}
	attention := r.component(componentAttention)
	if *attention.NS != 2700 || *attention.Share != 0.3 {
		t.Errorf("attention: %d ns, share %v", *attention.NS, *attention.Share)
	}
	want := map[PhaseComponent]int64{{"prefill", "attention"}: 1200, {"prefill", "mlp"}: 1600,
		{"prefill", "output"}: 800, {"decode", "attention"}: 300, {"decode", "mlp"}: 400, {"decode", "output"}: 200}
	if got := r.sum.ByPhaseAndComponent(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var text strings.Builder
	r.WriteText(&text)
	if want := "5.00 µs in 2 graphs, not known of 1 more; 90.0 % of it is attributed below"; !strings.Contains(
		text.String(), want) {
		t.Errorf("the text lacks %q:\n%s", want, text.String())
	}

	log = strings.ReplaceAll(log, end, `"timed_ns":3600`) // of no prompt it is known
	r = summarize(t, map[string]string{rundir.EventsName: log})
	attention = r.component(componentAttention)
	if *r.Coverage != 0.9 || *attention.NS != 2700 || *attention.Share != 0.3 {
		t.Errorf("%v covered; attention: %d ns, share %v", *r.Coverage, *attention.NS, *attention.Share)
	}
}

// TestNotTimed: what names the setting that times the inside of graphs names no level that the run has already.
func TestNotTimed(t *testing.T) {
	for level, want := range map[resource.Level]string{resource.Minimal: "--tap-resource-level DETAILED",
		resource.Detailed: "--tap-resource-sample 1", resource.Verbose: "--tap-resource-sample 1"} {
		s := &script{}
		s.begin(level)
		s.exec++
		s.put(resource.Graph{Header: s.head(resource.KindGraph), Exec: s.exec, Graph: 1, Phase: "prefill", Tokens: 2,
			NodeCount: 7, DurationNS: ptr(int64(1000))})
		var text strings.Builder
		summarize(t, map[string]string{rundir.EventsName: s.String()}).WriteText(&text)
		if !strings.Contains(text.String(), "is not known: record with "+want+"\n") {
			t.Errorf("%s: %s", level, text.String())
		}
	}
}
