package analyze

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/mrm/verdict"
	"github.com/llamatap/llamatap/store/rundir"
)

const (
	second = int64(1e9)
	start  = int64(1_700_000_000) * second
)

// short is a run of a second, in which a weight was read ten times.
func short(trace bool) *memrun.Run {
	r := &memrun.Run{Model: "m", Regions: []memrun.Region{
		{ID: 0, Type: "weight", Name: "w", Layer: -1, Buffer: 1, Bytes: 4000, FirstRead: start, LastRead: start + second, Reads: 11, Read: 44000, Alloc: start},
	}}
	for i := int64(0); i <= 10 && trace; i++ {
		r.Trace = append(r.Trace, memrun.Access{NS: start + i*second/10, Phase: "generation", Op: "read", Type: "weight", Collector: "graph", Size: 4000, Buffer: 1, Graph: i, Token: i})
	}
	return r
}

// TestRun: everything is written below derived, the run stays what it was, and a second time takes the place of the first.
func TestRun(t *testing.T) {
	for _, trace := range []bool{false, true} {
		dir := short(trace).Write(t, t.TempDir())
		for range 2 {
			r, err := Run(context.Background(), dir, Options{Forms: []string{"svg"}, Version: "v1", Command: []string{"llamatap", "mrm", "analyze"}})
			if err != nil {
				t.Fatal(err)
			}
			if (r.From == "trace") != trace || !slices.Contains(r.Files, "metrics.csv") || !slices.Contains(r.Files, "suitability.svg") || slices.Contains(r.Files, "access_heatmap.svg") != trace {
				t.Errorf("from %s: %v", r.From, r.Files)
			}
			there, _ := filepath.Glob(filepath.Join(r.Out, "*"))
			if len(there) != len(r.Files) {
				t.Errorf("%d files, %d are told", len(there), len(r.Files))
			}
			labels := r.Report.Labels[0]
			if labels.Label != "medium_mrm" || labels.LabelCensor == "low_mrm" { // a second is not ten
				t.Errorf("%+v", labels)
			}
		}
		hidden, _ := filepath.Glob(filepath.Join(dir, "derived", ".*"))
		if report, err := rundir.Verify(dir); err != nil || len(report.Changed)+len(report.Extra)+len(hidden) > 0 {
			t.Errorf("%+v, %v, %v", report, hidden, err)
		}
		var derived struct{ Files []map[string]any }
		if text, err := os.ReadFile(filepath.Join(dir, "derived.json")); err != nil || json.Unmarshal(text, &derived) != nil || len(derived.Files) != 1 || derived.Files[0]["path"] != "derived/mrm" {
			t.Errorf("%+v, %v", derived, err)
		}
	}
}

// TestRefusals: runs that are not sealed, contaminated, of another version, and classes that are not there.
func TestRefusals(t *testing.T) {
	bad := short(false)
	bad.Metadata = verdict.Metadata{SchemaVersion: memtrace.Version, Metadata: rundir.Metadata{Version: 1, RunID: "r"}, Validity: verdict.Validity{Class: verdict.Contaminated}}
	contaminated := bad.Write(t, t.TempDir())
	foreign := short(false)
	foreign.Metadata = verdict.Metadata{SchemaVersion: "9.0", Metadata: rundir.Metadata{Version: 1}}
	open := short(false).Write(t, t.TempDir())
	if err := os.Remove(filepath.Join(open, rundir.ManifestName)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		o    Options
		want string
	}{
		"contaminated": {contaminated, Options{}, "is contaminated"},
		"foreign":      {foreign.Write(t, t.TempDir()), Options{}, "9.0"},
		"not sealed":   {open, Options{}, "no manifest"},
		"no class":     {short(false).Write(t, t.TempDir()), Options{Classes: []string{"nothing"}}, "no device class"},
		"no file":      {short(false).Write(t, t.TempDir()), Options{Devices: "/nothing"}, "device classes"},
	} {
		_, err := Run(context.Background(), c.dir, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(c.dir, "derived")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was written", name)
		}
	}
	if r, err := Run(context.Background(), contaminated, Options{Contaminated: true}); err != nil || len(r.Files) != 6 {
		t.Errorf("forced: %v", err)
	}
}
