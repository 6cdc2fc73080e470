package tensors

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestSegmentGone: of a segment that is gone, verify says so, and what was in it as far as the metadata list that.
func TestSegmentGone(t *testing.T) {
	for want, listed := range map[string][]rundir.Segment{
		"seg-00002 is gone, with all of its files": nil,
		"seg-00002 is gone, with all of its files: 50 tokens and 300 packets": {
			{Name: "seg-00001", Tokens: 15, Packets: 60}, {Name: "seg-00002", Tokens: 50, Packets: 300}},
	} {
		d, err := rundir.Create(t.TempDir(), "m", time.Now())
		check(t, err)
		s, err := d.Segment(2)
		check(t, err)
		check(t, errors.Join(s.WriteJSON(rundir.MetadataName, rundir.Metadata{}), s.Seal(), d.AddSegment("seg-00002")))
		check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{RunID: d.ID(), Segments: listed}))
		check(t, d.Seal())
		check(t, os.RemoveAll(filepath.Join(d.Path(), "seg-00002")))
		v, err := Verify(d.Path())
		check(t, err)
		if !slices.Contains(v.Findings, Finding{Damage, want}) {
			t.Errorf("%+v, want %q", v.Findings, want)
		}
	}
}

// TestSegmentsCutOff: of a run whose collector was killed, segments that were being made or removed do not keep the
// others from being read, and are reported.
func TestSegmentsCutOff(t *testing.T) {
	run := t.TempDir()
	whole := (&fixture{}).build(t)
	if err := os.Rename(whole, filepath.Join(run, "seg-00002")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"seg-00001", "seg-00003"} {
		if err := os.Mkdir(filepath.Join(run, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(run, "seg-00001", rundir.TokensName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(run, "seg-00004"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{rundir.StreamName, rundir.StreamName + stream.IndexSuffix} { // made a moment ago
		if err := os.WriteFile(filepath.Join(run, "seg-00004", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(run, "seg-00005"), 0o700); err != nil {
		t.Fatal(err)
	}
	// the moment before
	if err := os.WriteFile(filepath.Join(run, "seg-00005", rundir.StreamName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	alone, err := Verify(filepath.Join(run, "seg-00002"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := Verify(run)
	if err != nil || v.OK || v.Sealed || v.Packets != alone.Packets || v.Tokens != alone.Tokens {
		t.Errorf("%+v %v, the segment: %+v", v, err, alone)
	}
	found := 0
	for _, f := range v.Findings {
		if f.Kind == Unsealed && (strings.HasPrefix(f.What, "seg-00001:") || strings.HasPrefix(f.What, "seg-00003:")) {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%+v", v.Findings)
	}
	r, err := Open(run)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Stream.Len() != alone.Packets || r.Sealed {
		t.Errorf("%d packets, %d are there", r.Stream.Len(), alone.Packets)
	}
	if _, err := Open(filepath.Join(run, "seg-00001")); err == nil {
		t.Error("nothing was opened")
	}
}
