package tensors

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestVerifyOthers: what recorders of something else than tensors lack is a loss, and a folder without anything
// recorded is no run.
func TestVerifyOthers(t *testing.T) {
	for name, c := range map[string]struct {
		meta rundir.Metadata
		want string // "": nothing is lost
	}{
		"whole": {rundir.Metadata{Extra: map[string]json.RawMessage{"memory_samples": json.RawMessage(
			`{"lossy":false}`)}}, ""},
		"no samples": {rundir.Metadata{}, ""},
		"lost samples": {rundir.Metadata{Extra: map[string]json.RawMessage{"memory_samples": json.RawMessage(
			`{"lossy":true}`)}}, "extra.memory_samples"},
		"a full disk": {rundir.Metadata{Extra: map[string]json.RawMessage{"memory_samples": json.RawMessage(
			`{"lossy":true,"error":"no space"}`)}}, "missing: no space"},
		"stopped":   {rundir.Metadata{Stopped: &rundir.Stopped{Cause: "min_free"}}, "min_free"},
		"marked so": {rundir.Metadata{Lossy: true}, "lossy"},
		"of other form": {rundir.Metadata{Extra: map[string]json.RawMessage{"memory_samples": json.RawMessage(`[1]`)}},
			""},
	} {
		d, err := rundir.Create(filepath.Join(t.TempDir(), "a[b]*"), "m", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c.meta.Version, c.meta.Losses = rundir.MetadataVersion, []rundir.Loss{}
		if err := d.WriteJSON(rundir.MetadataName, c.meta); err != nil {
			t.Fatal(err)
		}
		if err := d.Seal(); err != nil {
			t.Fatal(err)
		}
		v, err := Verify(d.Path())
		if err != nil || v.OK != (c.want == "") || !v.Sealed {
			t.Errorf("%s: %+v, %v", name, v, err)
			continue
		}
		if c.want != "" && (len(v.Findings) != 1 || v.Findings[0].Kind != Lost ||
			!strings.Contains(v.Findings[0].What, c.want)) {
			t.Errorf("%s: %+v", name, v.Findings)
		}
	}
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "notes.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(empty); err == nil || !strings.Contains(err.Error(), "no captured tensors") {
		t.Errorf("a folder of something else: %v", err)
	}
	if err := os.WriteFile(filepath.Join(empty, "process.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(empty); err != nil || v.OK || v.Findings[0].Kind != Unsealed {
		t.Errorf("an unsealed run: %+v, %v", v, err)
	}
}
