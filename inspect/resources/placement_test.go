package resources

import (
	"fmt"
	"strings"
	"testing"
)

// TestPlacement: time by device, and the changes between devices of each execution; set-up and what was not timed count
// nowhere.
func TestPlacement(t *testing.T) {
	var log strings.Builder
	node := func(exec int, device, phase, more string) {
		fmt.Fprintf(&log,
			`{"event":"compute_execution","mono_ns":1,"ctx":0,"exec":%d,"resource_id":"%s_compute_layer_0_mlp_1",`+
				`"phase":%q,"operation":"MUL_MAT","component_type":"mlp","layer_id":0,"node_count":1%s}`+"\n",
			exec, device, phase, more)
	}
	node(1, "cpu", "setup", `,"duration_ns":999`)
	for _, device := range []string{"cpu", "rpc0", "rpc0", "cpu"} { // two changes
		node(2, device, "prefill", `,"duration_ns":100`)
	}
	for _, device := range []string{"rpc0", "cpu", "rpc0"} { // two; the one from execution to execution counts not
		node(3, device, "decode", `,"duration_ns":200`)
	}
	node(3, "gpu", "decode", "")
	s := newSum()
	for i, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		s.Add(Line{Number: int64(i), Text: []byte(line)})
	}
	r := s.Report()
	if len(r.Placement) != 2 || r.Placement[0] != (DeviceRow{"rpc0", 4, 600, 0.6}) ||
		r.Placement[1] != (DeviceRow{"cpu", 3, 400, 0.4}) || r.DeviceChanges == nil || *r.DeviceChanges != 2 {
		t.Errorf("%+v, %v changes", r.Placement, r.DeviceChanges)
	}
	if got, want := placementText(r.Placement, r.DeviceChanges),
		"rpc0 600 ns (60.0 %), cpu 400 ns (40.0 %); 2.00 changes between them per graph"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
