//go:build linux

package oracle

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestResumeHost: host collectors of a resumed run cover it from its beginning, as if it were
// another run.
func TestResumeHost(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedBPF(t)
	args := slices.Insert(resumeArgs([]string{"--temp", "0"}, 60), 1, "--tap-host", "block,system,waits,prof",
		"--tap-host-interval", "100ms", "--tap-host-details")
	out := t.TempDir()
	killAtToken(t, out, 12, args...)
	if !resumes(t, out) {
		t.Log("it was done before it was killed")
		return
	}
	dir := dirOf(t, out)
	finish(t, command(t, "run", "--tap-resume", dir), out).good(t)
	llamatap(t, "verify", dir).good(t)
	left, err := filepath.Glob(filepath.Join(dir, "*.orig"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	seen := map[uint64]int{}
	totals := 0
	for _, l := range jsonLines[resource.WaitLine](t, filepath.Join(dir, rundir.WaitsName)) {
		switch l.Kind {
		case resource.WaitGraph:
			seen[*l.Exec]++
		case resource.WaitTotal:
			totals++
		}
	}
	if len(seen) < 60 || totals != 1 {
		t.Errorf("%d executions, %d totals", len(seen), totals)
	}
	for exec, n := range seen {
		if n != 1 {
			t.Errorf("execution %d is there %d times", exec, n)
		}
	}
}
