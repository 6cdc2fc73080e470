package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// movedRun is a sealed run of a part of events and two segments, of which the part and the first segment were moved.
func movedRun(t *testing.T) (dir string, m *Moved) {
	t.Helper()
	d, err := Create(t.TempDir(), "m", time.Now())
	if err == nil {
		err = d.WriteJSON("resource.jsonl", "events")
	}
	for n := 1; n <= 2 && err == nil; n++ {
		var s *Dir
		if s, err = d.Segment(n); err == nil {
			err = errors.Join(s.WriteJSON(MetadataName, "segment"), s.Seal(), d.AddSegment(SegmentName(n)))
		}
	}
	m = &Moved{To: "s3://runs/m/" + d.ID()}
	for range 2 {
		name, f := Oldest(d)
		m.Files = append(m.Files, f)
		err = errors.Join(err, Move(d, name))
	}
	for range 2 { // the second one replaces the first
		err = errors.Join(err, d.WriteJSON(MetadataName, Metadata{Version: MetadataVersion, RunID: d.ID(), Moved: m}))
	}
	if info, failed := os.Stat(filepath.Join(d.Path(), MetadataName)); failed != nil || d.Written() != info.Size() {
		t.Errorf("%d bytes are written, want those of %s alone (%v)", d.Written(), MetadataName, failed)
	}
	if err = errors.Join(err, d.Seal()); err != nil {
		t.Fatal(err)
	}
	return d.Path(), m
}

// TestMove: what is moved is in the manifest and not in the directory, and nothing is moved twice.
func TestMove(t *testing.T) {
	dir, m := movedRun(t)
	if r, err := Verify(dir); err != nil || !r.Sealed || len(r.Changed)+len(r.Extra) > 0 || len(r.Missing) != 2 ||
		!m.Has(r.Missing[0]) || !m.Has(r.Missing[1]) {
		t.Errorf("%+v, %v", r, err)
	}
	left, err := Segments(dir)
	if err != nil || !slices.Equal(left, []string{SegmentName(2)}) || m.Has(SegmentName(2)+"/"+ManifestName) {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "resource.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the part is there: %v", err)
	}
	if text := m.String(); text != "1 segments and 1 parts of tables and events" {
		t.Error(text)
	}
}

// TestAbsent: of what was moved, only that is absent which is not in the directory.
func TestAbsent(t *testing.T) {
	dir, m := movedRun(t)
	if a := m.Absent(dir); a == nil || len(a.Files) != 2 || a.To != m.To {
		t.Errorf("%+v", a)
	}
	if err := os.WriteFile(filepath.Join(dir, "resource.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a := m.Absent(dir); a == nil || len(a.Files) != 1 || a.Has("resource.jsonl") {
		t.Errorf("%+v", a)
	}
	if err := os.MkdirAll(filepath.Join(dir, SegmentName(1)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, SegmentName(1), ManifestName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a := m.Absent(dir); a != nil {
		t.Errorf("all of it is there, and absent is %+v", a)
	}
	if a := (*Moved)(nil).Absent(dir); a != nil {
		t.Errorf("%+v", a)
	}
}
