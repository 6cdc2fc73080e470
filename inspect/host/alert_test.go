package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// named is the line that STRAP-LLM's documentation shows: its devices have names and no numbers.
const named = `{"timestamp": 1696262400.123, "iso_timestamp": "2025-10-02T14:20:00.123000+00:00", "interval_s": 5.0,
 "latency_histogram": [{"device_name": "nvme0n1", "total": 45123,
  "buckets": [{"slot": 4, "count": 45123, "bucket_low": 16, "bucket_high": 31}]}],
 "inflight": [{"device_name": "nvme0n1", "count": 24}]}`

// analyzedText writes lines to a file and analyses it.
func analyzedText(t *testing.T, lines ...string) *Report {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tracepoints.jsonl")
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", "") + "\n"
	}
	if err := os.WriteFile(name, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return analyzed(t, Options{Block: name, Percentiles: []float64{50, 99}})
}

// TestNamedDevice: a device with a name alone is one device, in both lists and in all snapshots, and differs from
// another.
func TestNamedDevice(t *testing.T) {
	r := analyzedText(t, named, strings.Replace(named, "1696262400", "1696262405", 1),
		strings.ReplaceAll(strings.Replace(named, "1696262400", "1696262410", 1), "nvme0n1", "sdb"))
	if len(r.Devices) != 2 || r.Devices[0].Name != "nvme0n1" || r.Devices[0].Requests != 2*45123 ||
		r.Devices[1].Name != "sdb" || r.Devices[1].Requests != 45123 {
		t.Fatalf("%+v", r.Devices)
	}
	if q := r.Devices[0].Queue; q == nil || q.Max != 24 || q.Snapshots != 2 || r.Devices[0].ID >= -1 {
		t.Errorf("%+v, id %d", q, r.Devices[0].ID)
	}
	if len(r.Alerts) != 0 {
		t.Errorf("%q", r.Alerts)
	}
}

// TestAlerts: each limit of STRAP-LLM's documentation is reported by the device that passes it.
func TestAlerts(t *testing.T) {
	line := func(slot, count, depth string) string {
		return `{"timestamp":1,"interval_s":5,"latency_histogram":[{"device_id":1,"device_name":"sda","total":` +
			count + `,"buckets":[{"slot":` + slot + `,"count":` + count +
			`}]}],"inflight":[{"device_id":1,"count":` + depth + `}]}`
	}
	for name, c := range map[string]struct{ line, want string }{
		"quick": {line("13", "9", "100"), ""},
		"slow":  {line("14", "9", "0"), "sda: p99 latency is between 8.19 ms and 16.4 ms"},
		"deep":  {line("3", "9", "101"), "sda: 101 requests in flight"},
		"nothing": {`{"timestamp":1,"interval_s":5,"latency_histogram":[],"inflight":[]}`,
			"no block device completed a request in 1 snapshot"},
	} {
		alerts := strings.Join(analyzedText(t, c.line).Alerts, "\n")
		if (c.want == "") != (alerts == "") || !strings.Contains(alerts, c.want) {
			t.Errorf("%s: %q, want %q", name, alerts, c.want)
		}
	}
}
