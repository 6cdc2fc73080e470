package config

import (
	"slices"
	"testing"
)

// TestSamplesImplyRegions: what samples touch is said by the map of memory, which comes with them and says so.
func TestSamplesImplyRegions(t *testing.T) {
	tap := mustResolve(t, world{}, "--tap-samples", "perf:faults,pages")
	if !tap.Records(Samples) || !tap.Records(Regions) || tap.Records(Activations) || !tap.MonitorsProcess() {
		t.Errorf("recorders %v", tap.Echo().Recorders)
	}
	if at := tap.Echo().Settings["regions"]; at.Value != "on" {
		t.Errorf("regions: %+v", at)
	}
	if !tap.SamplesWith(SampleFaults) || !tap.SamplesWith(SamplePages) || len(tap.Samples) != 2 ||
		!slices.Equal(tap.Samples[0], SampleChoice{"perf", "faults"}) {
		t.Errorf("%v", tap.Samples)
	}
	if tap := mustResolve(t, world{}, "--tap-ledger"); tap.Records(Samples) || !tap.MonitorsProcess() {
		t.Errorf("recorders %v", tap.Echo().Recorders)
	}
	if tap := mustResolve(t, world{}, "--tap-regions"); tap.Records(Samples) || tap.MonitorsProcess() ||
		tap.SamplesWith(SamplePerf) {
		t.Errorf("recorders %v", tap.Echo().Recorders)
	}
	both := mustResolve(t, world{}, "--tap-samples", "faults", "--tap-regions")
	if at := both.Echo().Settings["regions"]; at.Where != "--tap-regions" || len(both.Echo().Recorders) != 2 {
		t.Errorf("regions: %+v, recorders %v", at, both.Echo().Recorders)
	}
}
