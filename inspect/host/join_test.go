package host

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// graphLine is the execution of a graph, in seconds.
func graphLine(from, seconds float64, phase string, tokens int) string {
	ns := int64(seconds * 1e9)
	text, err := json.Marshal(resource.Graph{Header: resource.Header{Event: resource.KindGraph,
		UnixNS: int64(from * 1e9), SessionID: "s"}, Phase: phase, Tokens: tokens, DurationNS: &ns})
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

// TestPhases joins a run whose figures can be added up in the head: ten intervals of a second, a prompt in the
// first two, tokens in the next five, one of which has both, and two without a graph.
func TestPhases(t *testing.T) {
	dir := t.TempDir()
	var block, system strings.Builder
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&block,
			`{"timestamp":%d,"interval_s":1,"latency_histogram":[{"device_id":1,"device_name":"a",`+
				`"buckets":[{"slot":%d,"count":10}]}],"inflight":[]}`+"\n", i, i)
		fmt.Fprintf(&system, `{"timestamp":%d.5,"interval_s":1,"off_cpu_ns":{"5":%d000000},"page_faults":{"5":100}}`+
			"\n", i, i)
	}
	block.WriteString(strings.Replace(snapshot(0), `"timestamp":0,`, "", 1) + "\n")
	events := graphLine(0.1, 0.5, resources.PhaseSetup, 0) + graphLine(1.0, 1.4, "prefill", 64) + "{bad\n"
	for i := range 40 { // ten a second, from 2.5 to 6.5
		events += graphLine(2.5+float64(i)/10, 0.1, "decode", 1)
	}
	// None of the run's tokens: what failed, what a draft model computed, and drafts that were rejected.
	events += strings.Replace(graphLine(5.1, 0.1, "decode", 9), `"status":0`, `"status":2`, 1) +
		strings.Replace(graphLine(5.2, 0.1, "decode", 7), `"status":0`, `"status":0,"drafts":true,"ctx":1`, 1) +
		graphLine(5.4, 0.1, "decode", 5) +
		strings.Replace(graphLine(8.2, 0.5, "maintenance", 0), `"status":0`, `"status":0,"rejected":5`, 1)
	put(t, dir, "block_io.jsonl", block.String())
	put(t, dir, "system_metrics.jsonl", system.String())
	put(t, dir, rundir.EventsName, events)
	put(t, dir, "metadata.json", `{"model":{"name":"tiny"}}`)
	var o Options
	if err := o.InRun(dir); err != nil {
		t.Fatal(err)
	}
	r := analyzed(t, o)
	type row struct {
		block, requests, system int64
		tokens, p50, offCPU     float64
	}
	want := map[string]row{
		"setup": {1, 10, 0, 0, 1, 0}, "prefill": {1, 10, 1, 64 / 1.4, 3, 2}, // to 1, to 2; of system metrics to 2.5
		phaseMixed: {1, 10, 1, 64*0.4/1.4 + 5, 7, 1}, // to 3; of system metrics to 1.5
		"decode":   {4, 40, 4, 35, 31, 3 + 4 + 5 + 6}, "maintenance": {1, 10, 2, 0, 511, 8 + 9},
		phaseNone: {2, 20, 2, 0, 255, 7 + 10}, phaseUnknown: {1, 1, 0, 0, 7, 0},
	}
	var names []string
	for _, p := range r.Phases {
		w, ok := want[p.Phase]
		names = append(names, p.Phase)
		got := row{p.BlockIntervals, int64(p.Requests), p.SystemIntervals, p.BlockTokens,
			float64(p.Percentiles[0].AtMostUS), 0}
		if p.OffCPUMS != nil {
			got.offCPU = *p.OffCPUMS
		}
		if !ok || got.block != w.block || got.requests != w.requests || got.system != w.system ||
			!near(got.tokens, w.tokens, 1e-6) || got.p50 != w.p50 || !near(got.offCPU, w.offCPU, 1e-9) {
			t.Errorf("%s: %+v, want %+v", p.Phase, got, w)
		}
		if p.Phase == "decode" && (!near(*p.RequestsPerToken, 40.0/35, 1e-6) ||
			!near(*p.FaultsPerToken, 400/p.SystemTokens, 1e-6)) {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(names, ","); got != "setup,prefill,decode,maintenance,mixed,no graph,unknown" ||
		r.Model != "tiny" {
		t.Errorf("%s of model %q", got, r.Model)
	}
}

// TestPhasesOfWaits takes the times of graphs from the run's waits, which are of another clock.
func TestPhasesOfWaits(t *testing.T) {
	dir := t.TempDir()
	var block, waits strings.Builder
	for i := 1; i <= 4; i++ {
		fmt.Fprintf(&block,
			`{"timestamp":%d,"mono_ns":%d,"interval_s":1,"latency_histogram":[{"device_id":1,"device_name":"a",`+
				`"buckets":[{"slot":%d,"count":10}]}],"inflight":[]}`+"\n",
			1790000000+i, (70+i)*1e9, i)
	}
	for i := range 20 { // ten a second, in the second and third second
		text, err := json.Marshal(resource.WaitLine{Kind: resource.WaitGraph, Phase: "decode", TokenCount: 1,
			BeginNS: 71e9 + int64(i)*1e8, EndNS: 71e9 + int64(i)*1e8 + 9e7})
		if err != nil {
			t.Fatal(err)
		}
		waits.Write(append(text, '\n'))
	}
	put(t, dir, "block_io.jsonl", block.String())
	put(t, dir, rundir.WaitsName, waits.String()+
		`{"kind":"between","begin_mono_ns":73000000000,"end_mono_ns":74000000000}`+"\n")
	var o Options
	if err := o.InRun(dir); err != nil {
		t.Fatal(err)
	}
	r := analyzed(t, o)
	if len(r.Phases) != 2 || r.Phases[0].Phase != "decode" || r.Phases[0].BlockIntervals != 2 ||
		!near(r.Phases[0].BlockTokens, 20, 1e-6) || *r.Phases[0].RequestsPerToken < 0.999 {
		t.Errorf("%+v\n%q", r.Phases, r.Notes)
	}
}

// TestPhasesMissing checks the notes on what is missing to determine phases.
func TestPhasesMissing(t *testing.T) {
	for name, c := range map[string]struct{ events, want string }{
		"no log":   {"", "--tap-resource-level"},
		"no times": {`{"event":"graph_execution","unix_ns":5,"tokens":1}` + "\n", "none of the 1 graphs"},
	} {
		dir := t.TempDir()
		put(t, dir, "block_io.jsonl", snapshot(5)+"\n")
		if c.events != "" {
			put(t, dir, rundir.EventsName, c.events)
		}
		var o Options
		if err := o.InRun(dir); err != nil {
			t.Fatal(err)
		}
		if r := analyzed(t, o); r.Phases != nil || !strings.Contains(strings.Join(r.Notes, "\n"), c.want) {
			t.Errorf("%s: %+v %q", name, r.Phases, r.Notes)
		}
	}
}

// TestThreads reads what llamatap's own recorder adds to system metrics: names, reasons of waiting, how it was
// recorded.
func TestThreads(t *testing.T) {
	line := `{"timestamp":%d,"interval_s":1,"interval_actual_s":1.001,"origin":"%s",` +
		`"off_cpu_ns":{"11":5000000,"12":1000000},"page_faults":{"10":7},"pressure":{},` +
		`"processes":[{"pid":10,"comm":"llama-cli"}],"threads":[` +
		`{"tid":11,"tgid":10,"comm":"worker","runnable_wait_ns":1000000,` +
		`"blocked_disk_ns":3000000,"blocked_lock_ns":1000000,"blocked_other_ns":0},` +
		`{"tid":12,"tgid":10,"comm":"main","runnable_wait_ns":1000000,` +
		`"blocked_disk_ns":0,"blocked_lock_ns":0,"blocked_other_ns":0}],` +
		`"lost":{"threads":2,"unsteady":0},"missing":["no PSI"]}` + "\n"
	r := analyzed(t, Options{System: put(t, t.TempDir(), "s",
		fmt.Sprintf(line, 1, "bpf")+fmt.Sprintf(line, 2, "proc"))})
	first := r.OffCPU.Top[0]
	if first.ID != "11" || first.Name != "worker" || first.TGID != 10 || first.Value != 10 ||
		*first.By != (ByReason{Runnable: 2, Disk: 6, Lock: 2}) ||
		*r.OffCPU.By != (ByReason{Runnable: 4, Disk: 6, Lock: 2}) {
		t.Errorf("%+v, by %+v of %+v", first, first.By, r.OffCPU.By)
	}
	if f := r.Faults.Top[0]; f.Name != "llama-cli" || f.Value != 14 || f.By != nil {
		t.Errorf("%+v", f)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"1 of 2 snapshots", "/proc", "threads 4", "no PSI"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in the notes:\n%s", want, notes)
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "no CPU free") ||
		!strings.Contains(text.String(), "worker") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// Threads that wait for work are in no off-CPU time, neither of a recorder that reports their roles nor of one that
// put all into off_cpu_ns.
func TestParkedThreads(t *testing.T) {
	for name, c := range map[string]struct{ off, reasons string }{
		"reasons": {`{"12":20000000,"14":30000000}`,
			`,"role":"parked","futex_ns":980000000,"futex_idle_ns":980000000,"futex_unknown_ns":0`},
		"before": {`{"11":990000000,"12":1000000000,"13":400000000,"14":30000000}`, ""},
	} {
		busy := `,"role":"unknown","futex_ns":400000000,"futex_idle_ns":0,"futex_unknown_ns":400000000`
		if c.reasons == "" {
			busy = ""
		}
		line := `{"timestamp":1,"interval_s":1,"interval_actual_s":1,"off_cpu_ns":` + c.off +
			`,"page_faults":{},"pressure":{},"threads":[` +
			`{"tid":11,"tgid":10,"comm":"idler","lived_ns":1000000000,"oncpu_ns":10000000,"runnable_wait_ns":0,` +
			`"blocked_disk_ns":0,"blocked_lock_ns":990000000,"blocked_other_ns":0,"idle_ns":0` +
			strings.ReplaceAll(c.reasons, "980", "990") + `},` +
			`{"tid":12,"tgid":10,"comm":"late","lived_ns":1000000000,"oncpu_ns":0,"runnable_wait_ns":20000000,` +
			`"blocked_disk_ns":0,"blocked_lock_ns":980000000,"blocked_other_ns":0,"idle_ns":0` + c.reasons + `},` +
			`{"tid":13,"tgid":10,"comm":"busy","lived_ns":1000000000,"oncpu_ns":600000000,"runnable_wait_ns":0,` +
			`"blocked_disk_ns":0,"blocked_lock_ns":400000000,"blocked_other_ns":0,"idle_ns":0` + busy + `},` +
			`{"tid":14,"tgid":10,"comm":"reader","lived_ns":1000000000,"oncpu_ns":970000000,"runnable_wait_ns":0,` +
			`"blocked_disk_ns":30000000,"blocked_lock_ns":0,"blocked_other_ns":0,"idle_ns":0` +
			strings.ReplaceAll(busy, "400000000", "0") + `}]}` + "\n"
		r := analyzed(t, Options{System: put(t, t.TempDir(), "s", line)})
		if top := r.OffCPU; len(top.Top) != 1 || top.Top[0].ID != "14" || top.Top[0].Role != "unknown" ||
			top.Total != 50 {
			t.Errorf("%s: %+v", name, top)
		}
		if *r.OffCPU.By != (ByReason{Runnable: 20, Disk: 30, ForWork: 1970, Unknown: 400}) {
			t.Errorf("%s: %+v", name, *r.OffCPU.By)
		}
	}
}
