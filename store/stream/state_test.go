package stream

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStateLoads: loads are in the index with the time of their clock, also where it was cut off and repaired.
func TestStateLoads(t *testing.T) {
	loads := []StateLoad{{Ctx: 0, MonoNS: 1000}, {Ctx: 3, MonoNS: 1000}, {Ctx: 0, MonoNS: 5_000_000_000}}
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := Create(path, Options{Workers: 1})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	for _, l := range loads {
		check(w.AppendStateLoad(l))
	}
	check(w.Commit())
	check(w.Close())
	for _, cut := range []int64{0, 20} {
		info, err := os.Stat(path + IndexSuffix)
		check(err)
		check(os.Truncate(path+IndexSuffix, info.Size()-cut))
		_, err = Repair(path, Assumed{})
		check(err)
		r, err := Open(path)
		check(err)
		n := 0
		for l := range r.StateLoads() {
			if n < len(loads) && l != loads[n] {
				t.Errorf("load %d is %+v, want %+v", n, l, loads[n])
			}
			n++
		}
		if n != len(loads) || r.Err() != nil {
			t.Errorf("%d bytes cut off: %d loads, %v", cut, n, r.Err())
		}
		check(r.Close())
	}
}
