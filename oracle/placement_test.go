//go:build linux

package oracle

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestPlacement computes some of the layers on a device behind a socket: the time on each device is that of its events,
// and a run of one device has one.
func TestPlacement(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	for _, c := range []struct {
		args    []string
		devices []string
	}{{[]string{"--rpc", endpoint, "-ngl", "3"}, []string{"cpu", "rpc0"}}, {nil, []string{"cpu"}}} {
		args := slices.Concat([]string{"run", "--tap-resource-level", "DETAILED", "-m", testenv.Model(t), "-c", "512"},
			c.args, generate(3))
		dir := llamatap(t, args...).good(t).dirs[0]
		want := map[string]int64{}
		for _, e := range of[resource.Compute](eventsOf(t, filepath.Join(dir, "resource.jsonl"))) {
			if e.Phase != "setup" && e.DurationNS != nil && e.Within == "" && e.TimeSource != resource.TimeGraph &&
				e.TimeSource != resource.TimeSync {
				device, _, _ := strings.Cut(e.ResourceID, "_compute_")
				want[device] += *e.DurationNS
			}
		}
		var r resources.Report
		if err := json.Unmarshal([]byte(llamatap(t, "resource", "summary", dir, "--json").good(t).stdout),
			&r); err != nil {
			t.Fatal(err)
		}
		var devices []string
		for _, row := range r.Placement {
			devices = append(devices, row.Device)
			if row.NS != want[row.Device] {
				t.Errorf("%q: %s took %d ns, its events %d", c.args, row.Device, row.NS, want[row.Device])
			}
		}
		if slices.Sort(devices); !slices.Equal(devices, c.devices) {
			t.Errorf("%q: devices %q, want %q", c.args, devices, c.devices)
		}
		onCPU, all := float64(want["cpu"]), float64(want["cpu"]+want["rpc0"])
		if len(c.devices) == 1 {
			onCPU = 0
		}
		share, standsOut := report(t, dir).share("layers on the CPU beside a device")
		if math.Abs(share-onCPU/all) > 1e-9 || standsOut != (share >= 0.25) {
			t.Errorf("%q: the report has %v, %v; %v of %v ns were on the CPU", c.args, share, standsOut, onCPU, all)
		}
		if r.DeviceChanges == nil || (*r.DeviceChanges > 0) != (len(c.devices) > 1) {
			t.Errorf("%q: %v changes per graph", c.args, r.DeviceChanges)
		}
	}
}

// TestPlacementWithin computes experts and attention on other devices than the rest of their layers: DETAILED counts
// the changes between devices that VERBOSE does, op by op.
func TestPlacementWithin(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	model := synthetic(t, "qwen3moe", gguf.F16, nil)
	for _, flags := range testenv.ByDay([][]string{{"--n-cpu-moe", "2"}, {"--no-kv-offload"}}, 1) {
		changes, onCPU := map[string]float64{}, map[string]int64{}
		for _, level := range []string{"DETAILED", "VERBOSE"} {
			dir := llamatap(t, slices.Concat([]string{"llama-completion", "--tap-resource-level", level,
				"--tap-resource-sample", "1", "-m", model, "-c", "512", "-no-cnv", "--rpc", endpoint, "-ngl", "99",
				"-fa", "off"}, flags, generate(3))...).good(t).dirs[0]
			var r resources.Report
			if err := json.Unmarshal([]byte(llamatap(t, "resource", "summary", dir, "--json").good(t).stdout),
				&r); err != nil {
				t.Fatal(err)
			}
			if r.DeviceChanges == nil {
				t.Fatalf("%q, %s: no changes between devices", flags, level)
			}
			changes[level] = *r.DeviceChanges
			for _, row := range r.Placement {
				if row.Device == "cpu" {
					onCPU[level] = row.NS
				}
			}
		}
		if changes["DETAILED"] != changes["VERBOSE"] || changes["VERBOSE"] < 4 {
			t.Errorf("%q: %v changes per graph", flags, changes)
		}
		if onCPU["DETAILED"] < onCPU["VERBOSE"]/4 {
			t.Errorf("%q: %v ns on the CPU", flags, onCPU)
		}
	}
}
