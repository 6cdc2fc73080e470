package memtrace

import (
	"errors"
	"math"
	"testing"
)

// TestObserved measures two regions whose figures are known by hand.
func TestObserved(t *testing.T) {
	var o Observed
	for _, a := range []struct {
		ns, region int64
		op         AccessOp
		addr       uint64
	}{
		// kept 5 s, half of two addresses once
		{1e9, 1, OpRead, 0}, {2e9, 1, OpWrite, 8}, {3e9, 1, OpWrite, 8}, {4e9, 1, OpWrite, 4096}, {7e9, 1, OpRead, 8},
		{5e9, 2, OpRead, 1 << 20}, {6e9, 2, OpUnknown, 1 << 21}, // never written: kept from the first access on
	} {
		if err := o.Add(a.ns, a.region, Weight, a.op, a.addr); err != nil {
			t.Fatal(err)
		}
	}
	all := o.Types()
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	want := ObservedType{
		Type: Weight, Regions: 2, RetentionP50: 2.5, RetentionP90: 4.5, RetentionP99: 4.95, RetentionMean: 2.5,
		WriteOnce: 0.5, ReadsPerWrite: 1.0 / 3, Pages: 4,
	}
	got := all[0]
	for _, pair := range [][2]float64{{got.RetentionP90, want.RetentionP90}, {got.RetentionP99, want.RetentionP99},
		{got.ReadsPerWrite, want.ReadsPerWrite}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%v, want %v", pair[0], pair[1])
		}
	}
	got.RetentionP90, got.RetentionP99, got.ReadsPerWrite = want.RetentionP90, want.RetentionP99, want.ReadsPerWrite
	if got != want || got.Label(DefaultThresholds()) != MediumMRM {
		t.Errorf("%+v, want %+v", got, want)
	}
	o.kept = maxObserved
	if err := o.Add(1, 3, Weight, OpRead, 1<<30); !errors.Is(err, ErrObserved) {
		t.Errorf("more addresses than are distinguished: %v", err)
	}
}
