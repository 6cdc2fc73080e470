//go:build linux

package filemap

import (
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/bpf"
)

// TestCost logs the cost of each program per run, as the kernel counts it; it is a measurement only where nothing else
// runs.
func TestCost(t *testing.T) {
	testenv.Once(t, "TestAgainstUserSpace")
	testenv.NeedBPF(t)
	counting, err := bpf.EnableStats()
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	path := onDisk(t, 16)
	ran := map[string]bool{}
	for _, mode := range []string{"cold", "warm", "populate", "flood"} {
		pid, start := toucher(t, path, mode, 2000)
		s, _ := heard(t, sourceOptions{Target: bpf.Target{PIDs: []int{pid}}})
		start()
		s.Stop()
		stats, err := s.Programs()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range stats {
			if p.Runs > 0 {
				ran[p.Name] = true
				t.Logf("%-9s %-12s %6d runs, %4.0f ns each", mode, p.Name, p.Runs, p.PerNS)
			}
		}
	}
	for _, name := range []string{"on_fault", "on_minor", "on_major", "on_page", "on_around", "on_cached", "on_switch",
		"on_start", "on_issue", "on_complete"} {
		if !ran[name] {
			t.Errorf("%s never ran", name)
		}
	}
}
