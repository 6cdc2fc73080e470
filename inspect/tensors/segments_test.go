package tensors

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

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
