package oplog

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
)

var update = flag.Bool("update", false, "write the samples of docs/EVENTS.md anew")

const guide = "../../docs/EVENTS.md"

// everything is a recording that has an event of each kind.
func everything(t *testing.T) *bench {
	sampled := false
	b := scene(t, Options{
		Level: resource.Verbose, Text: texts, Threads: 2, PerSecond: 70,
		Roofline: &resource.Roofline{GFLOPsPerS: 120, GBPerS: 24},
		Pressure: func() string { return "low" },
		Devices: func(to *Readings) {
			if sampled {
				return
			}
			sampled = true
			to.Zones = append(to.Zones, ZoneReading{MonoNS: 1_007_000_000, WindowNS: 1e8, Zone: "package-0/dram",
				WindowJ: 0.812})
			to.GPUs = append(to.GPUs, GPUReading{MonoNS: 1_007_000_000, WindowNS: 1e8, WindowJ: 24.98,
				EnergySource: resource.EnergyCounter,
				Sample: nvml.Sample{Name: "NVIDIA H100 80GB HBM3", GPUPercent: 87, MemoryPercent: 41,
					UtilizationNS: 1e8, UsedBytes: 3 << 30, TotalBytes: 80 << 30, SMMHz: 1755, MemoryMHz: 2619,
					PCIeTxKBPerS: 1200, PCIeRxKBPerS: 34000, PowerMW: 250_500}})
		},
	})
	g, ids, weights := mixture(1)
	g.ID = 3
	b.check(b.Graph(g))
	nodes := []int32{0, 1, 2, 3, 4, 5}
	capture := func(node int32, data []byte) *ggmlhooks.Capture {
		n := &g.Nodes[node]
		return &ggmlhooks.Capture{Node: int(node), NE: n.NE, Data: data, For: ggmlhooks.ForRouting, Blocks: 1,
			Release: func() {}}
	}
	b.run(batch{graph: g, tokens: []int32{9}, read: true, nodes: nodes, times: []int64{900, 1500, 2100, 240, 800, 5200},
		captures: []*ggmlhooks.Capture{
			capture(ids, numbers(3, 1)), capture(weights, numbers(0.75, 0.25)),
		}})
	b.check(b.r.KV(&kvcache.Operation{
		Change: kvcache.Change{Action: kvcache.Allocate, PosFirst: 5, PosEnd: 6, Cells: 1, Written: 1}, MonoNS: b.clock,
		Exec:   b.exec,
		Layers: []kvcache.LayerBytes{{Layer: 0, K: 128, V: 128, KWritten: 128, VWritten: 128}}, Reused: 0, Needed: 6,
	}))
	b.r.SetLevel(resource.Minimal, b.clock)
	b.clock += 1000
	many := small(4, 1)
	b.check(b.Graph(many))
	for range 100 {
		b.run(batch{graph: many, tokens: []int32{1}, read: true})
	}
	return b
}

// TestSamples compares the samples of docs/EVENTS.md with what the recorder writes: the second event of each kind,
// where there are two.
func TestSamples(t *testing.T) {
	var lines []string
	synctest.Test(t, func(t *testing.T) { lines, _ = everything(t).lines() }) // within one second
	var want strings.Builder
	for k, kind := range resource.Kinds() {
		sample, n := "", 0
		for _, line := range lines {
			if strings.HasPrefix(line, `{"event":"`+kind+`"`) && n < 2 {
				sample, n = line, n+1
			}
		}
		if n == 0 {
			t.Errorf("%v is not among the samples", resource.Kind(k))
		}
		fmt.Fprintf(&want, "### %s\n\n```json\n%s\n```\n\n", kind, sample)
	}
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- samples -->\n", "<!-- /samples -->"
	before, rest, ok1 := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s has no %s … %s", guide, begin, end)
	case *update:
		if err := os.WriteFile(guide, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case got != want.String():
		t.Errorf("%s: the samples are not what the recorder writes: go test ./resource/oplog -update", guide)
	}
}

// TestRecipes runs the recipes of docs/EVENTS.md.
func TestRecipes(t *testing.T) {
	jq := testenv.NeedJQ(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := everything(t)
		b.lines()
		b.check(os.WriteFile(filepath.Join(dir, "resource.jsonl"), b.out.Bytes(), 0o600))
	})
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- recipes")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	recipes, _, _ := strings.Cut(rest, "```")
	ran := 0
	for line := range strings.Lines(recipes) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(jq)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "{") || strings.Contains(string(out), "null") &&
			!strings.Contains(line, "{name,") {
			t.Errorf("%s%v\n%s", line, err, out)
		}
		ran++
	}
	if ran < 7 {
		t.Errorf("%d recipes", ran)
	}
}
