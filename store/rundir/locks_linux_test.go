package rundir

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// TestInUseBesideOtherLocks: a run is in use for as long as its lock is held, also where the kernel's list of locks is
// long and others come and go. Read in pieces, such a list leaves locks out.
func TestInUseBesideOtherLocks(t *testing.T) {
	dir := t.TempDir()
	var others sync.WaitGroup
	stop := make(chan struct{})
	for i := range 60 {
		path := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if lock, err := Lock(path); err == nil && lock != nil {
					lock.Close()
				}
			}
		})
	}
	defer others.Wait()
	defer close(stop)
	lock, err := Lock(dir)
	if err != nil || lock == nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for i := range 500 {
		if held, known := InUse(dir); known && !held {
			t.Fatalf("look %d does not find the lock", i)
		}
	}
}
