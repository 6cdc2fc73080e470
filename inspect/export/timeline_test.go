package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// TestNest: spans are ordered as they contain each other, and what reaches beyond its parent is clipped.
func TestNest(t *testing.T) {
	spans := nest([]span{
		{start: 20, end: 31, depth: depthOp, name: "b"}, // beyond its component
		{start: 10, end: 21, depth: depthOp, name: "a"}, // into the next op
		{start: 10, end: 30, depth: depthComponent, name: "mlp"},
		{start: 10, end: 40, depth: depthLayer, name: "layer 0"},
		{start: 5, end: 50, depth: depthGraph, name: "decode"},
		{start: 60, end: 70, depth: depthGraph, name: "next"},
	})
	var got []string
	for _, s := range spans {
		got = append(got, fmt.Sprintf("%s %d-%d", s.name, s.start, s.end))
	}
	want := []string{"decode 5-50", "layer 0 10-40", "mlp 10-30", "a 10-21", "b 21-30", "next 60-70"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not\n%q", got, want)
	}
	x := execution{spans: spans}
	self := map[string]int64{}
	x.self(func(stack []*span, ns int64) { self[stack[len(stack)-1].name] += ns })
	wantSelf := map[string]int64{"decode": 15, "layer 0": 10, "mlp": 0, "a": 11, "b": 9, "next": 10}
	if !reflect.DeepEqual(self, wantSelf) {
		t.Errorf("self times %v, not %v", self, wantSelf)
	}
}

// TestOrder: a layer ends before a component begins that belongs to none.
func TestOrder(t *testing.T) {
	log := strings.Replace(events(1, 1, 1), `{"event":"graph`, `{"event":"component_begin","mono_ns":1000900,"ctx":0,`+
		`"exec":1,"layer_id":-1,"component_type":"output"}
{"event":"component_end","mono_ns":1000950,"ctx":0,"exec":1,"layer_id":-1,"component_type":"output"}
{"event":"graph`, 1)
	_, text := writeTimeline(t, log, TimelineOptions{Format: Speedscope})
	layer, output := strings.Index(string(text), `{"type":"C","frame":1,"at":1000900}`),
		strings.Index(string(text), `{"type":"O","frame":4,"at":1000900}`)
	if layer < 0 || output < layer {
		t.Errorf("%s", text)
	}
}

// events is the log of n tokens, each of a graph of 1000 ns with ops that take 900 of them; one in every is timed.
func events(n, ops, every int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for i := range n {
		at := 1_000_000 + 2000*i
		line(`{"event":"output_token","mono_ns":%d,"ctx":0,"exec":%d,"token_index":%d,"token_id":7,"token_text":" é",`+
			`"pos":%d,"seq_id":0,"latency_ns":2000}`, at, i+1, i, i)
		timed := ""
		if i%every == 0 {
			timed = `,"timed_ns":900`
			line(`{"event":"layer_begin","mono_ns":%d,"ctx":0,"exec":%d,"layer_id":3}`, at, i+1)
			line(`{"event":"component_begin","mono_ns":%d,"ctx":0,"exec":%d,"layer_id":3,"component_type":"mlp"}`, at,
				i+1)
			for k := range ops {
				line(`{"event":"compute_execution","mono_ns":%d,"ctx":0,"exec":%d,"operation":"mul_mat",`+
					`"name":"ffn_up-3","component_type":"mlp","layer_id":3,"node_count":1,`+
					`"time_source":"op","duration_ns":%d,"flops":%d}`, at+900/ops*k, i+1, 900/ops, 1800/ops)
			}
			line(`{"event":"component_end","mono_ns":%d,"ctx":0,"exec":%d,"layer_id":3,"component_type":"mlp"}`, at+900,
				i+1)
			line(`{"event":"layer_end","mono_ns":%d,"ctx":0,"exec":%d,"layer_id":3}`, at+900, i+1)
		}
		line(`{"event":"graph_execution","mono_ns":%d,"ctx":0,"exec":%d,"phase":"decode","tokens":1,`+
			`"duration_ns":1000,"flops":1800%s}`, at, i+1, timed)
	}
	return b.String()
}

func writeTimeline(t *testing.T, log string, o TimelineOptions) (*TimelineResult, []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resource.jsonl")
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := WriteTimeline(context.Background(), path, &out, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != int64(out.Len()) {
		t.Errorf("%d bytes, and %d are counted", out.Len(), r.Bytes)
	}
	return r, out.Bytes()
}

// TestProfile: the time of all samples is that of the graphs, and what was not timed inside is a frame of its own.
func TestProfile(t *testing.T) {
	_, text := writeTimeline(t, events(10, 3, 5), TimelineOptions{Format: PProf})
	p, err := profile.ParseData(text)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]int64{}
	for _, s := range p.Sample {
		var names []string
		for i := len(s.Location) - 1; i >= 0; i-- {
			names = append(names, s.Location[i].Line[0].Function.Name)
		}
		got[strings.Join(names, "/")] = s.Value[:3]
	}
	want := map[string][]int64{
		"decode/layer 3/mlp/mul_mat/ffn_up": {1800, 6, 3600},
		"decode/layer 3/mlp/(between)":      {0, 2, 0},
		"decode/layer 3/(between)":          {0, 2, 0},
		"decode/(between)":                  {200, 2, 0},
		"decode/(not timed inside)":         {8000, 8, 14400},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not\n%v", got, want)
	}
}

// TestProfileOfNeighbours: a component has no parts where a deeper span follows it; what it did is its own.
func TestProfileOfNeighbours(t *testing.T) {
	p := newProfile(&counted{}, about{})
	err := p.execution(&execution{phase: "decode", timed: true, spans: []span{
		{end: 100, depth: depthGraph, name: "decode"}, {end: 20, depth: depthComponent, name: "other", flops: 7},
		{start: 30, end: 50, depth: depthOp, name: "mul_mat", flops: 11},
	}})
	got := map[string]int64{}
	for names, s := range p.samples {
		got[names] = s.Value[valueFLOPs]
	}
	if want := map[string]int64{"decode\x00(between)": 0, "decode\x00other": 7, "decode\x00mul_mat": 11}; err != nil ||
		!maps.Equal(got, want) {
		t.Errorf("%v, not %v, %v", got, want, err)
	}
}

// TestProfileOfLosses: a profile says how many graphs the run lost.
func TestProfileOfLosses(t *testing.T) {
	lost := `{"event":"loss","mono_ns":9,"kind":"%s","cause":"rate","count":%d}` + "\n"
	r, text := writeTimeline(t, events(10, 3, 5)+fmt.Sprintf(lost, "graph_execution", 4)+
		fmt.Sprintf(lost, "graph_execution", 3)+fmt.Sprintf(lost, "output_token", 2), TimelineOptions{Format: PProf})
	const want = "left out: 7 graphs, which the run lost, 2 other events, which the run lost"
	p, err := profile.ParseData(text)
	if err != nil || len(p.Comments) != 2 || p.Comments[1] != want || r.LeftOut() != want {
		t.Errorf("%q, %q, %v", p.Comments, r.LeftOut(), err)
	}
}

// TestBound: a file that would be larger than its bound has no ops for a part of the run, and says so.
func TestBound(t *testing.T) {
	log := events(600, 30, 1)
	for _, format := range []string{Perfetto, Chrome, Speedscope} {
		whole, _ := writeTimeline(t, log, TimelineOptions{Format: format, MaxBytes: 1 << 40})
		if whole.SpansLeft != 0 || whole.Spans != 600*33 || whole.LeftOut() != "" {
			t.Errorf("%s: %+v", format, whole)
		}
		most := whole.Bytes / 3
		r, _ := writeTimeline(t, log, TimelineOptions{Format: format, MaxBytes: most})
		if r.SpansLeft == 0 || r.Spans+r.SpansLeft != whole.Spans || r.Graphs != 600 || r.LeftOut() == "" {
			t.Errorf("%s: %+v of %+v", format, r, whole)
		}
		if r.Bytes > most*12/10 {
			t.Errorf("%s: %d bytes, and at most %d may be", format, r.Bytes, most)
		}
	}
}

// TestUnknownEnds: a graph without a duration is left out, and said to be, not to be lost.
func TestUnknownEnds(t *testing.T) {
	lines := strings.SplitAfter(events(6, 2, 1), "\n")
	for i, n := 0, 0; i < len(lines) && n < 2; i++ {
		if strings.Contains(lines[i], `"event":"graph_execution"`) {
			lines[i] = strings.Replace(lines[i], `"duration_ns":1000,`, "", 1)
			n++
		}
	}
	r, _ := writeTimeline(t, strings.Join(lines, ""), TimelineOptions{Format: Chrome})
	if r.Graphs != 4 || r.Untimed != 2 || r.LeftOut() != "left out: 2 graphs, whose time is not known" {
		t.Errorf("%+v: %s", r, r.LeftOut())
	}
}

// TestDamage: bad lines and parts without their graph are counted, and the rest is written.
func TestDamage(t *testing.T) {
	lines := strings.SplitAfter(events(6, 2, 1), "\n")
	lines[3] = "rubbish \x00\n"
	lines[7] = "" // a graph event
	r, _ := writeTimeline(t, strings.Join(lines, ""), TimelineOptions{Format: Chrome})
	if r.BadLines != 1 || r.Graphs != 5 || r.Incomplete == 0 || !strings.Contains(r.LeftOut(), "1 lines") {
		t.Errorf("%+v: %s", r, r.LeftOut())
	}
	if _, err := WriteTimeline(context.Background(), t.TempDir(), &bytes.Buffer{}, TimelineOptions{Format: Chrome}); err == nil {
		t.Error("a folder without events is no error")
	}
	if _, err := WriteTimeline(context.Background(), "", &bytes.Buffer{}, TimelineOptions{Format: "dot"}); err == nil {
		t.Error("an unknown format is no error")
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	os.WriteFile(path, []byte(events(6, 2, 1)), 0o600)
	if _, err := WriteTimeline(ctx, path, &bytes.Buffer{}, TimelineOptions{Format: Perfetto}); err == nil {
		t.Error("an export that was ended is no error")
	}
}

// TestHost: what the host's collectors recorded becomes counters; a partition's bytes are its disk's. Lines of another
// host's collectors alternate.
func TestHost(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"resource.jsonl": events(3, 2, 1),
		"system_metrics.jsonl": `{"mono_ns":1000000,"interval_actual_s":1,"pressure":{"io":{"some":{"total":100}}}}
{"mono_ns":2000000,"interval_actual_s":2,"pressure":{"io":{"some":{"total":500100}}},"threads":[` +
			`{"tid":7,"comm":"llama","lived_ns":1000,"oncpu_ns":600,"runnable_wait_ns":300,"blocked_disk_ns":100},` +
			`{"tid":8,"comm":"pool","role":"parked","lived_ns":1000,"oncpu_ns":0}]}` + "\n",
		"block_io.jsonl": `{"mono_ns":2000000,"interval_actual_s":2,"devices":[` +
			`{"device_name":"nvme0n1","ops":[{"op":"read","bytes":4000}]},` +
			`{"device_name":"nvme0n1p1","part_of":5,"ops":[{"op":"read","bytes":4000}]}]}` + "\n",
		"hosts.jsonl": `{"host":"b","mono_ns":1000000,"interval_actual_s":1,"pressure":{"io":{"some":{"total":100}}}}
{"host":"b","collector":"clock","mono_ns":1500000}
{"host":"b","mono_ns":2000000,"interval_actual_s":2,"pressure":{"io":{"some":{"total":200100}}}}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if _, err := WriteTimeline(context.Background(), dir, &out, TimelineOptions{Format: Chrome}); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, e := range trace.TraceEvents {
		for _, value := range e.Args {
			if v, ok := value.(float64); ok && e.Ph == "C" {
				got[e.Name] = v
			}
		}
	}
	want := map[string]float64{"pressure: io": 25, "thread 7 llama: running": 60,
		"thread 7 llama: waiting for a CPU":  30,
		"thread 7 llama: waiting for a disk": 10, "nvme0n1: read": 2000, "b pressure: io": 10}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("counters %v, not\n%v", got, want)
	}
}
