package object

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// spooled makes a sealed run of two segments. The first was moved to a place after it was copied there.
func spooled(t *testing.T, to *Store) string {
	t.Helper()
	run, err := rundir.Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		s, err := run.Segment(n)
		for _, err := range []error{err, s.WriteJSON(rundir.MetadataName, n), s.Seal(),
			run.AddSegment(rundir.SegmentName(n))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	to = to.Below(run.ID())
	name, f := rundir.Oldest(run)
	if to.Has(f) {
		t.Errorf("%s was not copied yet", f.Name)
	}
	err = to.PushFiles(t.Context(), run.Path(), []rundir.File{f})
	if !to.Has(f) {
		t.Errorf("%s was copied", f.Name)
	}
	moved := &rundir.Moved{To: to.String(), Files: []rundir.File{f}}
	for _, err := range []error{err, run.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: 1, RunID: run.ID(),
		Moved: moved}), rundir.Move(run, name), run.Seal()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return run.Path()
}

// TestPushMoved: a run whose first segment is in the store alone is completed there, compared object by object, and
// goes to no other place.
func TestPushMoved(t *testing.T) {
	s, b := place(t, "bkt/p")
	run := spooled(t, s)
	key := "p/" + filepath.Base(run) + "/seg-00001/metadata.json"
	again, _ := Open("s3://bkt/p/" + filepath.Base(run))
	again.firstWait, again.Patience = time.Millisecond, time.Minute
	b.objects[key][0] ^= 1
	if err := again.Push(t.Context(), run); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "restore") {
		t.Errorf("pushed with a damaged object: %v", err)
	}
	b.objects[key][0] ^= 1
	if err := again.Push(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	dir, err := again.Fetch(t.Context(), Cache{t.TempDir(), 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := rundir.Verify(dir); err != nil || !r.Sealed || len(r.Missing) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := s.Below("other").Push(t.Context(), run); err == nil || !strings.Contains(err.Error(), again.String()) {
		t.Errorf("pushed elsewhere: %v", err)
	}
}

// TestQuit: a push ends between two objects.
func TestQuit(t *testing.T) {
	s, b := place(t, "bkt/run_1")
	quit := make(chan struct{})
	s.Quit = quit
	b.spoil = func(key string) string {
		if strings.HasPrefix(key, "PUT") && len(b.order) == 0 {
			close(quit)
		}
		return ""
	}
	if err := s.Push(t.Context(), sealed(t)); !errors.Is(err, ErrQuit) || len(b.order) != 1 {
		t.Errorf("%v, written %q, want one object", err, b.order)
	}
	away, _ := place(t, "bkt/run_1")
	closed := make(chan struct{})
	close(closed)
	away.Quit, away.client = closed, s.client
	b.spoil = func(string) string { return "SlowDown" }
	if err := away.Check(t.Context()); !errors.Is(err, ErrQuit) {
		t.Errorf("a store that does not answer: %v, want ErrQuit", err)
	}
}
