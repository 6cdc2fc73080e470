package autoencoder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestMissingSegments: of three segments, one is there, one was removed to make room, and one is missing.
func TestMissingSegments(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, rundir.SegmentName(1)), 0o700); err != nil {
		t.Fatal(err)
	}
	s := runSource{run: &tensors.Run{Path: folder, Metadata: &rundir.Metadata{Segments: []rundir.Segment{
		{Name: rundir.SegmentName(1)}, {Name: rundir.SegmentName(2), Removed: time.Now()},
		{Name: rundir.SegmentName(3)}}}}}
	if got := s.missing(); !slices.Equal(got, []string{rundir.SegmentName(3)}) {
		t.Errorf("missing: %q", got)
	}
}
