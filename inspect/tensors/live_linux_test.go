package tensors

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestLiveRunIsNotDamaged cuts a run as a reader finds it while it is recorded: with its writer's lock that is a
// live run, without the lock a damaged one.
func TestLiveRunIsNotDamaged(t *testing.T) {
	f := fixture{}
	dir := f.build(t)
	check(t, os.Remove(filepath.Join(dir, rundir.ManifestName)))
	index := filepath.Join(dir, rundir.StreamName+stream.IndexSuffix)
	info, err := os.Stat(index)
	check(t, err)
	check(t, os.Truncate(index, info.Size()*2/3))
	lock, err := os.Open(dir)
	check(t, err)
	check(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	if held, known := rundir.InUse(dir); !held || !known {
		t.Skipf("the kernel's locks cannot be seen here: %v %v", held, known)
	}
	s, err := Summarize(f.open(t), Filter{})
	check(t, err)
	if s.Packets == 0 || !s.Running || len(s.Damage) != 0 {
		t.Errorf("live: %d packets, running %v, damage %q", s.Packets, s.Running, s.Damage)
	}
	v, err := Verify(dir)
	check(t, err)
	if len(v.Findings) != 1 || v.Findings[0].Kind != Unsealed || v.OK {
		t.Errorf("live: %+v", v)
	}
	check(t, lock.Close())
	v, err = Verify(dir)
	check(t, err)
	if !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == Damage }) {
		t.Errorf("cut off: %+v", v)
	}
	s, err = Summarize(f.open(t), Filter{})
	check(t, err)
	if s.Running || len(s.Damage) == 0 {
		t.Errorf("cut off: running %v, damage %q", s.Running, s.Damage)
	}
}
