package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/host"
)

// TestHostAnalyze runs the command in the folder of a recording, and on a run directory: text or JSON on stdout,
// one warning and the count of charts on stderr, charts where they belong.
func TestHostAnalyze(t *testing.T) {
	dir := t.TempDir()
	block := `{"timestamp":%,"interval_s":5,"latency_histogram":[{"device_id":8388608,"device_name":"sda","total":3,` +
		`"buckets":[{"slot":7,"count":3,"bucket_low":128,"bucket_high":255}]}],"inflight":[]}` + "\n"
	block = strings.Replace(block, "%", "10", 1) + "{bad\n" + strings.Replace(block, "%", "15", 1)
	for name, text := range map[string]string{"tracepoints.jsonl": block,
		"system_metrics.jsonl": `{"timestamp":10,"interval_s":5,"off_cpu_ns":{"1":1000000}}` + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args   string
		charts string // folder
		want   int
	}{
		{"", "benchmarks/systems/I-O", 7}, // one pair has no trend and no correlation
		{". --chart-types hist,queue", "derived/host", 2},
		{"tracepoints.jsonl --charts-dir c --top 1 --percentiles 90", "c", 7},
		{"--no-charts --json", "", 0},
	} {
		cmd := self(append([]string{"host", "analyze"}, strings.Fields(c.args)...)...)
		cmd.Dir = dir
		var out, said strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", c.args, err, said.String())
		}
		charts, err := filepath.Glob(filepath.Join(dir, c.charts, "*.png"))
		if err != nil || c.charts != "" && len(charts) != c.want {
			t.Errorf("%s: %d charts, want %d: %q", c.args, len(charts), c.want, charts)
		}
		if strings.Count(said.String(), "1 line is no snapshot and passed over: 2 (") != 1 ||
			(c.want > 0) != strings.Contains(said.String(), " charts in ") {
			t.Errorf("%s: said %s", c.args, said.String())
		}
		var report host.Report
		if !strings.Contains(c.args, "--json") {
			if !strings.Contains(out.String(), "sda") || !strings.Contains(out.String(), "127 µs") {
				t.Errorf("%s: %s", c.args, out.String())
			}
		} else if err := json.Unmarshal([]byte(out.String()), &report); err != nil ||
			report.Devices[0].Percentiles[2].AtMostUS != 127 || report.Bounds.Corrected != 2 {
			t.Errorf("%s: %v %s", c.args, err, out.String())
		}
	}
	cmd := self("host", "analyze", "--charts-dir", "tracepoints.jsonl") // a file
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), "--no-charts draws none") {
		t.Errorf("charts that cannot be written: %v, %s", err, said)
	}
	derived, err := os.ReadFile(filepath.Join(dir, "derived.json"))
	if err != nil || !strings.Contains(string(derived), `"path": "derived/host"`) ||
		!strings.Contains(string(derived), `"analyze"`) {
		t.Errorf("%v %s", err, derived)
	}
}
