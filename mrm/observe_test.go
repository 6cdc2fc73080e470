package mrm

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
)

func TestAnswers(t *testing.T) {
	const good = `{"line":1,"id":"0","text":"x","tokens":[1,2,3],"finish":"length",` +
		`"prompt_tokens":4,"prompt_ns":100,"generation_ns":200}` + "\n"
	all, err := answers(strings.NewReader(good+strings.Replace(good, `200`, `300`, 1)), 2)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	if p := account(all); p != (memory.Pass{PromptTokens: 8, PromptNS: 100, GeneratedTokens: 6, GenerationNS: 300}) {
		t.Errorf("%+v", p)
	}
	if same(all, all) != nil || !*same(all[:1], all[1:]) {
		t.Error("equal tokens are not the same")
	}
	other := []answer{{Tokens: []int64{1, 2, 4}}}
	if *same(all[:1], other) {
		t.Error("other tokens are the same")
	}
	for text, want := range map[string]string{
		good:                           "1 of 2 requests have a result",
		`{"line":1,"error":"no room"}`: "the model failed: no room",
		`{"line`:                       "results of the model",
		strings.Replace(good, "length", "stop", 1): `ended by "stop"`,
	} {
		if _, err := answers(strings.NewReader(text), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestObserver computes a verdict by hand: 1.5 s of 10 are 15 % of a processor, 50 MB of 1 GB are 5 %.
func TestObserver(t *testing.T) {
	busy, events := 0.149, int64(0)
	o := observation{
		baseline: memory.Pass{PromptTokens: 100, PromptNS: 1e9, GeneratedTokens: 200, GenerationNS: 4e9,
			PeakRSSBytes: 1e9},
		tapped: memory.Pass{PromptTokens: 100, PromptNS: 2e9, GeneratedTokens: 200, GenerationNS: 5e9, WallNS: 10e9},
		cpu:    memory.CPU{Collector: 1e9, Tap: 2e8, MRM: 3e8}, memory: 5e7, busy: &busy, busyFor: 2,
		throttle: memory.Throttle{Cgroup: &events},
	}
	v := o.observer()
	for name, pair := range map[string][2]float64{
		"cpu": {*v.CPUPct, 15}, "memory": {*v.MemoryPct, 5}, "prefill": {*v.PrefillRatio, 0.5},
		"decode": {*v.DecodeRatio, 0.8}, "baseline": {*v.BaselineCPUPct, 14.9},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("%s is %g, want %g", name, pair[0], pair[1])
		}
	}
	if *v.CPUPeakPct != *v.CPUPct { // no second was longer looked at than the run
		t.Errorf("peak %g, mean %g", *v.CPUPeakPct, *v.CPUPct)
	}
	o.busiest = 0.4
	if v = o.observer(); math.Abs(*v.CPUPeakPct-42) > 1e-9 { // and the tap's 2 %
		t.Errorf("peak %g", *v.CPUPeakPct)
	}
	o.busiest = 0
	v = o.observer()
	if *v.ThrottleEvents != 0 || memory.Judge(&v).Class != memory.Marginal {
		t.Errorf("%+v", memory.Judge(&v))
	}
	v = (&observation{}).observer()
	if v.CPUPct != nil || v.MemoryPct != nil || v.DecodeRatio != nil || v.BaselineCPUPct != nil ||
		v.ThrottleEvents != nil {
		t.Errorf("known of nothing: %+v", v)
	}
}

// TestPeakCPU: the busiest second of a run, whatever it was on average, and none of a shorter one.
func TestPeakCPU(t *testing.T) {
	const ms = int64(1e6)
	for name, c := range map[string]struct {
		every int64   // ms between readings
		used  []int64 // ms in each
		want  float64
	}{
		"short":       {250, []int64{0, 200, 200}, 0},
		"steady":      {250, []int64{0, 25, 25, 25, 25, 25, 25, 25, 25}, 0.1},
		"burst":       {250, []int64{0, 0, 0, 0, 0, 200, 100, 0, 0, 0, 0, 0, 0}, 0.3},
		"at its end":  {250, []int64{0, 0, 0, 0, 0, 0, 0, 0, 100}, 0.1},
		"rare looks":  {1500, []int64{0, 750, 0}, 0.5},
		"whole first": {1000, []int64{0, 1000, 0, 0}, 1},
	} {
		var p peakCPU
		at, used := int64(0), int64(0)
		for i, more := range c.used {
			if i > 0 {
				at += c.every * ms
			}
			used += more * ms
			p.add(at, used)
		}
		if math.Abs(p.most-c.want) > 1e-9 || len(p.readings) > 6 {
			t.Errorf("%s: %g, want %g", name, p.most, c.want)
		}
	}
}

// TestJournal: a line that was cut off is passed over, and the next one is whole.
func TestJournal(t *testing.T) {
	out := t.TempDir()
	folder := filepath.Join(out, workFolder, "e")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	cell := &Cell{Cell: memory.Cell{Key: "k", Index: 3}}
	for _, seconds := range []float64{2, 4, 9} {
		if err := note(folder, cell, entry{Event: "sealed", TookS: seconds}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(folder, journalName)
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, text[:len(text)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := note(folder, cell, entry{Event: "failed", Why: "x"}); err != nil {
		t.Fatal(err)
	}
	all, err := readJournal(out, "e")
	if err != nil || len(all) != 3 || all[2].Event != "failed" || all[2].Index != 3 || took(all) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := readJournal(out, "none"); err != nil || all != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2}} {
		if got := middle(c.of); got != c.want {
			t.Errorf("%v: %g", c.of, got)
		}
	}
}
