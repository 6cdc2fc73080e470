package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Segment is one segment of a run: a directory in the run's that is a whole run directory by itself.
type Segment struct {
	Name   string    `json:"name"` // seg-00001 …
	Number int       `json:"number"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	// FirstToken and LastToken are the lowest and the highest token_index in it; absent in a segment without
	// tokens. Indexes continue from segment to segment.
	FirstToken *int64 `json:"first_token,omitempty"`
	LastToken  *int64 `json:"last_token,omitempty"`
	Tokens     int64  `json:"tokens"`
	Packets    uint64 `json:"packets"`
	Bytes      int64  `json:"bytes"` // of all its files; of the recorded ones alone in the segment's own metadata
	// Removed and RemovedFor are of runs of llamatap before [Rotated]: when it was removed, and which bound asked for
	// room.
	Removed    time.Time `json:"removed,omitzero"`
	RemovedFor string    `json:"removed_for,omitempty"`
}

// SegmentName is the folder of segment number n, from 1.
func SegmentName(n int) string { return fmt.Sprintf("seg-%05d", n) }

var segmentForm = regexp.MustCompile(`^seg-([0-9]{5,9})$`)

// OfSegment is an error that names the run of a segment, which holds what a segment has not: its tables and events.
// It is nil where a path is not a segment.
func OfSegment(path string) error {
	if !segmentForm.MatchString(filepath.Base(path)) {
		return nil
	}
	return fmt.Errorf("%s: a segment has tensors and tokens only: give the run, %s", path, filepath.Dir(path))
}

// Segments lists the folders of a run directory's segments, in order; none where the run has no segments.
func Segments(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && segmentForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return segmentNumber(a) - segmentNumber(b) })
	return names, nil
}

func segmentNumber(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "seg-")) // has matched
	return n
}

// Segment makes the folder of segment n in a run directory. Seal it, then call AddSegment.
func (d *Dir) Segment(n int) (*Dir, error) {
	name := SegmentName(n)
	path := filepath.Join(d.Path(), name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("make segment: %w", err)
	}
	return &Dir{id: d.ID() + "/" + name, contents: contents{path: path}}, nil
}

// AddSegment records a sealed segment: the run's manifest lists the segment's, which lists its files.
func (d *Dir) AddSegment(name string) error {
	name += "/" + ManifestName
	size, sum, err := hashFile(filepath.Join(d.Path(), name), anySize, func(int64) {})
	if err != nil {
		return fmt.Errorf("add segment: %w", err)
	}
	d.contents.add(File{name, size, sum})
	return nil
}

// removeSegment removes a segment from a run directory. It gets a temporary name first: what is left of a removal that
// is cut off is not a segment.
func removeSegment(dir, name string) error {
	removed := filepath.Join(dir, partName(name))
	if err := disk.rename(filepath.Join(dir, name), removed); err != nil {
		return fmt.Errorf("remove segment: %w", err)
	}
	return os.RemoveAll(removed)
}
