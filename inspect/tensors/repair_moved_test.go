package tensors

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestRepairMoved: of a killed run whose first segment is in object storage alone, a repair and the one after it list
// that segment, and count it neither as lost nor as given back. Verify says where it is.
func TestRepairMoved(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	for n := range 2 {
		s, err := d.Segment(n + 1)
		check(t, err)
		fill(t, s)
		check(t, d.AddSegment(rundir.SegmentName(n+1)))
	}
	name, f := rundir.Oldest(d)
	const url = "s3://runs/m/run_1"
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(),
		Created: time.Now(), Moved: &rundir.Moved{To: url, Files: []rundir.File{f}}, Losses: []rundir.Loss{},
		Config: map[string]any{"settings": map[string]any{"max_disk": map[string]any{"value": "4M:rotate"}}}}))
	check(t, rundir.Move(d, name))
	unlock(t, d)
	for _, damage := range []string{"", rundir.TokensName} {
		if damage != "" {
			remove(t, filepath.Join(d.Path(), rundir.SegmentName(2)), damage)
		}
		what, err := Repair(d.Path(), "test")
		check(t, err)
		manifest, err := rundir.ReadManifest(d.Path())
		check(t, err)
		m, err := rundir.ReadMetadata(d.Path())
		check(t, err)
		if !slices.Contains(manifest.Files, f) || m.Rotated != nil || !m.Moved.Has(f.Name) ||
			strings.Contains(strings.Join(what, "\n"), rundir.SegmentName(1)) {
			t.Errorf("%q: %+v, rotated %+v, moved %+v", what, manifest.Files, m.Rotated, m.Moved)
		}
		v, err := Verify(d.Path())
		check(t, err)
		said := false
		for _, finding := range v.Findings {
			said = said || finding.Kind == Note && strings.Contains(finding.What, url)
			if finding.Kind == Damage || finding.Kind == Unsealed {
				t.Error(finding.What)
			}
		}
		if !v.Sealed || v.Packets != tokens || !said {
			t.Errorf("%+v", v)
		}
	}
}

// TestSummaryOfMoved: what was moved is missing in the directory that it left, and not in a whole copy.
func TestSummaryOfMoved(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	fill(t, d)
	m, err := rundir.ReadMetadata(d.Path())
	check(t, err)
	for name, absent := range map[string]bool{"resource.7.jsonl": true, rundir.StreamName: false} {
		m.Moved = &rundir.Moved{To: "s3://runs/m/run_1", Files: []rundir.File{{Name: name}}}
		r, err := Open(d.Path())
		check(t, err)
		r.Metadata = &m
		s, err := Summarize(r, Filter{})
		check(t, err)
		var text strings.Builder
		check(t, s.WriteText(&text))
		if said := strings.Contains(text.String(),
			"0 segments and 1 parts of tables and events are in s3://"); said != absent {
			t.Errorf("%s: %s", name, text.String())
		}
		check(t, r.Close())
	}
}
