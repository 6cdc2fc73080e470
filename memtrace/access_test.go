package memtrace

import "testing"

// TestAccessNames: each value has a name of its own, and those of collectors are read again.
func TestAccessNames(t *testing.T) {
	seen := map[string]bool{}
	once := func(name string) {
		t.Helper()
		if seen[name] {
			t.Errorf("%q stands for two", name)
		}
		seen[name] = true
	}
	for o := range accessOps {
		once("op" + o.String())
	}
	for l := range cacheLevels {
		once("level" + l.String())
	}
	for c := range collectors {
		once("collector" + c.String())
		if back, err := ParseCollector(c.String()); err != nil || back != c {
			t.Errorf("%v is read as %v: %v", c, back, err)
		}
	}
	if _, err := ParseCollector("pref"); err == nil {
		t.Error("a collector that there is not is taken")
	}
	if accessOps.String() == "" || cacheLevels.String() == "" || collectors.String() == "" {
		t.Error("what is unknown has no name")
	}
}
