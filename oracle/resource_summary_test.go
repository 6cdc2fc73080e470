//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// recompute holds every figure of a run's resource summary against what DuckDB computes from the events by queries
// of its own, and those of caches against the run's other tables.
func recompute(t *testing.T, dir string) {
	t.Helper()
	python := testenv.NeedPython(t, "duckdb")
	said := llamatap(t, "resource", "summary", dir, "--json").good(t).stdout
	cmd := exec.Command(python, filepath.Join("testdata", "resource_summary.py"), dir)
	cmd.Stdin = strings.NewReader(said)
	if differs, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", dir, err, differs)
	}
}

// TestSummaryRecomputed: runs at every level, with a shifted context, and with experts.
func TestSummaryRecomputed(t *testing.T) {
	moe := synthetic(t, "qwen3moe", gguf.Q8_0, nil)
	for _, c := range testenv.ByDay([]struct {
		name string
		args []string
	}{
		{"experts", slices.Concat([]string{"--tap-resource-level", "VERBOSE", "-m", moe, "-c", "256"}, generate(8))},
		{"minimal", slices.Concat([]string{"--tap-resource-level", "MINIMAL"}, generate(12))},
		{"detailed", slices.Concat([]string{"--tap-resource-level", "DETAILED"}, generate(12))},
		{"shifted", slices.Concat([]string{"--tap-resource-level", "VERBOSE", "--tap-kv", "--tap-ledger", "-c", "256",
			"--context-shift"}, generate(300))},
	}, 1) {
		t.Run(c.name, func(t *testing.T) {
			recompute(t, llamatap(t, slices.Concat([]string{"run"}, c.args)...).good(t).dirs[0])
		})
	}
}

// TestSummaryOfServer: while one slot generates another one reads prompts, so that batches have tokens of both
// phases. The summary, the run's metadata and llama-server count the same tokens.
func TestSummaryOfServer(t *testing.T) {
	s := serve(t, []string{"--tap-resource-level", "DETAILED", "--tap-kv"}, "-np", "2", "-c", "2048", "-t", "1",
		"--no-webui")
	var prefill, decode int64
	add := func(a completionAnswer) {
		// the last one is not computed with
		prefill, decode = prefill+int64(a.Timings.Prompt), decode+int64(a.Predicted)-1
	}
	long := make(chan completionAnswer)
	go func() { long <- s.ask(t, question{prompt: prompt, slot: 0, n: 250}) }()
	for n, done := 0, false; !done; n++ {
		select {
		case a := <-long:
			add(a)
			done = true
		default:
			add(s.ask(t, question{prompt: fmt.Sprint("package p", n, "\n\nfunc main() {"), slot: 1, n: 2}))
		}
	}
	s.stop()
	dir := runDirs(t, s.out)[0]
	recompute(t, dir)
	var r resources.Report
	if err := json.Unmarshal([]byte(llamatap(t, "resource", "summary", dir, "--json").good(t).stdout), &r); err != nil {
		t.Fatal(err)
	}
	m, phases := metadata(t, dir), map[string]resources.PhaseRow{}
	for _, p := range r.Phases {
		phases[p.Phase] = p
	}
	if p := phases["prefill"]; p.Tokens != prefill || m.Tokens.Prompt != prefill || p.Mixed == 0 ||
		p.Mixed == p.Graphs {
		t.Errorf("prompts have %d tokens; summary: %+v, metadata: %+v", prefill, p, m.Tokens)
	}
	if p := phases["decode"]; p.Tokens != decode || m.Tokens.Generated != decode {
		t.Errorf("%d generated tokens were computed with; summary: %+v, metadata: %+v", decode, p, m.Tokens)
	}
}

// fakeGPU makes programs find an NVML library that has a GPU of 250.5 W.
func fakeGPU(t *testing.T) {
	folder := t.TempDir()
	if err := os.Symlink(testenv.FakeNVML(t), filepath.Join(folder, nvml.Name)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", folder)
}

// TestEnergyOfPhases: what a GPU used is divided among prefill, decode and the rest, adds up to what its counter said,
// and is in the events, the summaries and metadata alike. Of one without a counter that draws 250.5 W, each phase has
// used that by its time.
func TestEnergyOfPhases(t *testing.T) {
	for _, c := range testenv.ByDay([]struct {
		name, lacks, script, source string
		joules                      float64 // in all; 0: as samples say
	}{
		{"scripted counter", "PowerUsage", "10000 17000", resource.EnergyCounter, 7},
		{"counter", "", "", resource.EnergyCounter, 0},
		{"power", "TotalEnergyConsumption", "", resource.PowerSamples, 0},
		{"neither", "TotalEnergyConsumption PowerUsage", "", "", 0},
	}, 1) {
		t.Run(c.name, func(t *testing.T) {
			fakeGPU(t)
			t.Setenv("FAKE_NVML_LACKS", c.lacks)
			if c.script != "" {
				t.Setenv("FAKE_NVML_ENERGY", c.script)
			}
			args := slices.Concat([]string{"run", "--tap-resource-level", "VERBOSE"}, generate(24))
			var run outcome
			var dir string
			var events []any
			for range 8 { // a busy machine may take the first sample after the prompt, though hardly each time
				run = llamatap(t, args...).good(t)
				dir = run.dirs[0]
				events = eventsOf(t, filepath.Join(dir, "resource.jsonl"))
				if !slices.ContainsFunc(of[resource.Energy](events), func(e *resource.Energy) bool {
					return e.Phase != ggmlhooks.PhaseSetup.String() && e.UncoveredNS != 0
				}) {
					break
				}
			}
			recompute(t, dir)
			rows := map[string]resource.EnergyUse{}
			sum := 0.0
			for _, e := range of[resource.Energy](events) {
				rows[e.Phase] = e.EnergyUse
				late := e.Phase == ggmlhooks.PhaseSetup.String() && e.UncoveredNS != 0
				if e.EnergyJ == nil && late {
					continue // on a busy machine the first sample comes after the first graph
				}
				if e.EnergyJ == nil {
					t.Fatalf("%+v", e)
				}
				sum += *e.EnergyJ
				if e.Domain != "gpu-0" || e.EnergySource != c.source || e.UncoveredNS != 0 && !late {
					t.Errorf("%+v", e)
				}
				if watts := *e.EnergyJ / (float64(e.DurationNS) / 1e9); c.source == resource.PowerSamples &&
					math.Abs(watts-250.5) > 0.01 {
					t.Errorf("%s: %g W", e.Phase, watts)
				}
			}
			text := llamatap(t, "resource", "summary", dir).good(t).stdout
			if c.source == "" {
				if len(rows) > 0 || strings.Contains(text, "\nenergy ") || strings.Contains(run.stderr, " energy ") {
					t.Errorf("energy of a GPU that reports none: %+v\n%s", rows, text)
				}
				return
			}
			phases := of[resource.SessionEnd](events)[0].Phases
			for _, phase := range []string{"prefill", "decode"} {
				row := rows[phase]
				if row.Tokens == nil || *row.Tokens != phases[phase].Tokens || row.JoulesPerToken == nil ||
					math.Abs(float64(row.DurationNS-phases[phase].DurationNS)) > 1 {
					t.Errorf("%s: %+v; the session has %+v", phase, row, phases[phase])
				}
			}
			if rows["outside"].EnergyJ == nil || c.joules > 0 && math.Abs(sum-c.joules) > 1e-9 {
				t.Errorf("%g J in all: %+v", sum, rows)
			}
			var listed struct {
				Extra struct{ Energy []resource.EnergyUse }
			}
			raw, err := os.ReadFile(filepath.Join(dir, "metadata.json"))
			if err == nil {
				err = json.Unmarshal(raw, &listed)
			}
			if err != nil || len(listed.Extra.Energy) != len(rows) {
				t.Errorf("metadata: %+v, %v", listed, err)
			}
			for _, row := range listed.Extra.Energy {
				if !reflect.DeepEqual(row.EnergyJ, rows[row.Phase].EnergyJ) ||
					row.DurationNS != rows[row.Phase].DurationNS {
					t.Errorf("metadata: %+v, events: %+v", row, rows[row.Phase])
				}
			}
			for _, line := range resource.EnergyText(listed.Extra.Energy) {
				if !strings.Contains(text, "\nenergy    "+line+"\n") ||
					!strings.Contains(run.stderr, " energy    "+line+"\n") {
					t.Errorf("%q is not in both of\n%s\n%s", line, text, run.stderr)
				}
			}
		})
	}
}

// TestGPUSamples computes on a device behind a socket beside an NVML library with one GPU: its utilization is in
// samples of its own, with their windows, and in no event of what was computed.
func TestGPUSamples(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	fakeGPU(t)
	args := slices.Concat([]string{"run", "--tap-resource-level", "DETAILED", "-m", testenv.Model(t), "-c", "512",
		"--rpc", endpoint, "-ngl", "99"}, generate(8))
	dir := llamatap(t, args...).good(t).dirs[0]
	recompute(t, dir)
	events := eventsOf(t, filepath.Join(dir, "resource.jsonl"))
	samples := of[resource.GPUSample](events)
	if len(samples) < 2 {
		t.Fatalf("%d samples", len(samples))
	}
	for i, g := range samples {
		if *g.PowerW != 250.5 || *g.MemoryUsed != 3<<30 || *g.SMClockMHz != 1755 || *g.MemoryClockMHz != 2619 ||
			g.Source != resource.Measured {
			t.Errorf("%+v", g)
		}
		if i == 0 {
			if g.WindowNS != nil || g.EnergyJ != nil || g.Utilization != nil || *g.PCIeTxKBPerS != 1200 {
				t.Errorf("the first: %+v", g)
			}
			continue
		}
		if *g.WindowNS != g.MonoNS-samples[i-1].MonoNS || *g.Utilization != 87 || *g.MemoryUtilization != 41 ||
			*g.UtilizationNS != 60e6 || g.EnergySource != resource.EnergyCounter || *g.EnergyJ <= 0 {
			t.Errorf("sample %d: %+v after %+v", i, g, samples[i-1])
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "resource.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "sm_utilization") || strings.Contains(line, "gpu_") != strings.Contains(line,
			`"event":"gpu_sample"`) {
			t.Errorf("what NVML says stands with other figures: %s", line)
		}
	}
}
