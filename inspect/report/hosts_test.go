package report

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOtherHosts: what other hosts did, and what was moved there, is shown under their names, and not as this host's.
func TestOtherHosts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"metadata.json": `{"version":1,"losses":[],"extra":{"hosts":[{"name":"gpu1","address":"10.0.0.2:7878","clock":
{"offset_ns":2e9,"offset_uncertainty_ns":7000,"drift_ppb":1500,"drift_uncertainty_ppb":300,"steady":true,"samples":9},
"devices":[{"device":"RPC0","sent":2,"sent_bytes":96,"received":1,"received_bytes":8}]}]}}`,
		"system_metrics.jsonl": `{"mono_ns":1000,"interval_actual_s":1,"pressure":{"cpu":{"some":{"total":0}}}}
{"mono_ns":2000,"interval_actual_s":1,"pressure":{"cpu":{"some":{"total":500000}}}}
`,
		"hosts.jsonl": `{"host":"gpu1","collector":"clock","mono_ns":900,"offset_ns":5}
{"host":"gpu1","collector":"system","mono_ns":1000,"interval_actual_s":1,"pressure":{"cpu":{"some":{"total":100}}}}
{"host":"gpu1","collector":"system","mono_ns":2000,"interval_actual_s":1,"pressure":{"cpu":{"some":{"total":250100}}},
"threads":[{"tid":7,"comm":"rpc-server","lived_ns":100,"oncpu_ns":40}]}
`,
		"transfers.jsonl": `{"mono_ns":1000,"took_ns":5,"host":"gpu1","device":"RPC0",` +
			`"op":"set","tensor":"a","bytes":64}
{"mono_ns":1500,"took_ns":5,"host":"gpu1","device":"RPC0","op":"set","tensor":"b","bytes":32}
{"mono_ns":2000,"took_ns":5,"host":"gpu1","device":"RPC0","op":"get","tensor":"c","bytes":8}
`,
	} {
		if name == "hosts.jsonl" {
			text = strings.ReplaceAll(text, ",\n", ",")
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := readRun(t, dir).Page(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]float64{}
	for _, s := range page.Sections {
		for _, c := range s.Charts {
			for _, of := range c.Series {
				last[s.ID+" "+of.Name] = of.Y[len(of.Y)-1]
			}
		}
		const want = "gpu1: clock ahead by 2.000000 s ± 7.0 µs, drift 1.500 ± 0.300 ppm; " +
			"RPC0: sent 96 B in 2 tensors, received 8 B in 1"
		if s.ID == "devices" && !slices.Contains(s.Text, want) {
			t.Errorf("%q", s.Text)
		}
	}
	for name, want := range map[string]float64{"host cpu": 50, "host gpu1 cpu": 25,
		"host gpu1 7 rpc-server: running": 40,
		"devices to gpu1 RPC0":            96, "devices from gpu1 RPC0": 8} {
		if got, ok := last[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, last, want)
		}
	}
}
