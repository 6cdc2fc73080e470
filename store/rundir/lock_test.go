//go:build linux

package rundir

import (
	"testing"
	"time"
)

// TestInUse looks at a directory while it is written, and when it is sealed.
func TestInUse(t *testing.T) {
	d, err := Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if held, known := InUse(d.Path()); !held || !known {
		t.Errorf("while it is written: %v, %v", held, known)
	}
	if held, known := InUse(t.TempDir()); held || !known {
		t.Errorf("another directory: %v, %v", held, known)
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	if held, known := InUse(d.Path()); held || !known {
		t.Errorf("when it is sealed: %v, %v", held, known)
	}
}

func TestLocked(t *testing.T) {
	const list = "1: POSIX  ADVISORY  WRITE 1 fe:00:7 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 1 fe:00:8 0 EOF\n3: FLOCK  " +
		"ADVISORY  WRITE 29336 fe:00:101 0 EOF\nrubbish\n"
	for inode, want := range map[uint64]bool{101: true, 1: false, 7: false, 8: false} {
		if got := locked(list, inode); got != want {
			t.Errorf("inode %d: %v", inode, got)
		}
	}
}
