package memtrace

import "testing"

func TestRegionTypeNames(t *testing.T) {
	for i := range regionTypes {
		if got, err := ParseRegionType(i.String()); got != i || err != nil {
			t.Errorf("%v: %v, %v", i, got, err)
		}
	}
	if _, err := ParseRegionType("weights"); err == nil {
		t.Error("weights is none")
	}
	if got := regionTypes.String(); got != "region_type(10)" {
		t.Error(got)
	}
}
