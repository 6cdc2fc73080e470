package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestSegments seals a run of three segments of which the oldest is removed, and damages one.
func TestSegments(t *testing.T) {
	d := create(t)
	for n := 1; n <= 3; n++ {
		s, err := d.Segment(n)
		if err != nil {
			t.Fatal(err)
		}
		if s.ID() != d.ID()+"/"+SegmentName(n) || mode(t, s.Path()) != 0o700 {
			t.Errorf("id %s", s.ID())
		}
		put(t, s, "x", "text")
		if s.Size() != 4 {
			t.Errorf("size %d", s.Size())
		}
		if err := s.Seal(); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(s.Path()); err != nil || r.Files != 1 || len(r.Extra) != 0 {
			t.Errorf("%+v %v", r, err)
		}
		if err := d.AddSegment(filepath.Base(s.Path())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Segment(3); err == nil {
		t.Error("a segment twice")
	}
	if err := Remove(d, SegmentName(1)); err != nil {
		t.Fatal(err)
	}
	if Remove(d, SegmentName(1)) == nil {
		t.Error("removed twice")
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	names, err := Segments(d.Path())
	if err != nil || !slices.Equal(names, []string{"seg-00002", "seg-00003"}) {
		t.Errorf("%v %v", names, err)
	}
	if r, err := Verify(d.Path()); err != nil || r.Files != 2 || len(r.Extra)+len(r.Missing)+len(r.Changed) != 0 {
		t.Errorf("%+v %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(d.Path(), "seg-00002", ManifestName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(d.Path(), "seg-00003")); err != nil {
		t.Fatal(err)
	}
	if r, _ := Verify(d.Path()); !slices.Equal(r.Changed, []string{"seg-00002/manifest.json"}) ||
		!slices.Equal(r.Missing, []string{"seg-00003/manifest.json"}) {
		t.Errorf("%+v", r)
	}
}

// TestSegmentOrder: by number, whatever the names' lengths, and nothing else.
func TestSegmentOrder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"seg-100000", "seg-00002", "seg-99999", "seg-1", "seg-0000x", "derived"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := Segments(dir); err != nil || !slices.Equal(names,
		[]string{"seg-00002", "seg-99999", "seg-100000"}) {
		t.Errorf("%v %v", names, err)
	}
	if _, err := Segments(filepath.Join(dir, "none")); err == nil {
		t.Error("segments of nothing")
	}
}

// TestCreateTogether makes directories in one model's folder while others are removed with it.
func TestCreateTogether(t *testing.T) {
	out, now := t.TempDir(), time.Now()
	var mu sync.Mutex
	seen := map[string]bool{}
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			for i := range 50 {
				d, err := Create(out, "m", now)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[d.ID()] && i%2 == 1 {
					t.Errorf("%s twice", d.ID())
				}
				if i%2 == 1 {
					seen[d.ID()] = true
				}
				mu.Unlock()
				if i%2 == 0 {
					os.RemoveAll(d.Path())
					os.Remove(filepath.Dir(d.Path()))
				}
			}
		})
	}
	together.Wait()
	if entries, err := os.ReadDir(filepath.Join(out, "m")); err != nil || len(entries) != 200 {
		t.Errorf("%d directories, %v", len(entries), err)
	}
}
