package memtrace

import (
	"os"
	"reflect"
	"testing"
)

// TestOwnMaps reads the maps of this process: its code is found.
func TestOwnMaps(t *testing.T) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	m := NewRegionMap()
	m.SetMappings(1, parse(t, string(text)))
	if h := m.Address(uint64(reflect.ValueOf(TestOwnMaps).Pointer()), 1); h.Type() != Code {
		t.Errorf("%+v", h.Region)
	}
}
