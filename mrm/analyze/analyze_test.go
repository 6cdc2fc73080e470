package analyze

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// short is a run of a second, in which a weight was read ten times.
func short(trace bool) *memrun.Run {
	r := &memrun.Run{Model: "m", Regions: []memrun.Region{
		{ID: 0, Type: "weight", Name: "w", Layer: -1, Buffer: 1, Bytes: 4000, FirstRead: start,
			LastRead: start + second, Reads: 11, Read: 44000, Alloc: start},
	}}
	for i := int64(0); i <= 10 && trace; i++ {
		r.Trace = append(r.Trace, memrun.Access{NS: start + i*second/10, Phase: "generation", Op: "read",
			Type: "weight", Collector: "graph", Size: 4000, Buffer: 1, Graph: i, Token: i})
	}
	return r
}

// TestRun: everything is written below derived, the run stays what it was, and a second time takes the place of the
// first.
func TestRun(t *testing.T) {
	for _, trace := range []bool{false, true} {
		dir := short(trace).Write(t, t.TempDir())
		for range 2 {
			r, err := Run(context.Background(), dir,
				Options{Forms: []string{"svg"}, Version: "v1", Command: []string{"llamatap", "mrm", "analyze"}})
			if err != nil {
				t.Fatal(err)
			}
			if (r.From == "trace") != trace || !slices.Contains(r.Files, "metrics.csv") ||
				!slices.Contains(r.Files, "suitability.svg") ||
				slices.Contains(r.Files, "access_heatmap.svg") != trace {
				t.Errorf("from %s: %v", r.From, r.Files)
			}
			there, _ := filepath.Glob(filepath.Join(r.Out, "*"))
			if len(there) != len(r.Files) {
				t.Errorf("%d files, %d are reported", len(there), len(r.Files))
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
		if text, err := os.ReadFile(filepath.Join(dir, "derived.json")); err != nil ||
			json.Unmarshal(text, &derived) != nil || len(derived.Files) != 1 ||
			derived.Files[0]["path"] != "derived/mrm" {
			t.Errorf("%+v, %v", derived, err)
		}
	}
}

// layered is a run of thirty graphs in which two activations share 1000 bytes: h, written by each graph, covers the
// first 600, a, written by the first two graphs alone, the last 600. So the memory's last 400 bytes are written
// twice, and no byte of it once.
func layered() *memrun.Run {
	r := short(true)
	r.Regions = append(r.Regions,
		memrun.Region{ID: 1, Type: "activation", Name: "h", Layer: -1, Buffer: 3, Bytes: 600, FirstWrite: start,
			LastRead: start + second, Reads: 30, Writes: 30, Written: 18000, Read: 18000, Alloc: start},
		memrun.Region{ID: 2, Type: "activation", Name: "a", Layer: -1, Buffer: 3, Offset: 400, Bytes: 600,
			FirstWrite: start, LastRead: start + second, Reads: 1, Writes: 2, Written: 1200, Read: 600, Alloc: start},
		memrun.Region{ID: 3, Type: "activation", Name: "once", Layer: -1, Buffer: 3, Offset: 1000, Bytes: 77,
			FirstWrite: start, LastRead: start + second, Reads: 1, Writes: 1, Written: 77, Read: 77, Alloc: start},
		memrun.Region{ID: 4, Type: "compute_buffer", Name: "compute", Layer: -1, Buffer: 3, Bytes: 1077, Alloc: start})
	touch := func(graph, region, offset, size int64, op string) {
		r.Trace = append(r.Trace, memrun.Access{NS: start + graph*second/30, Phase: "generation", Op: op,
			Type: "activation", Collector: "graph", Region: region, Size: size, Buffer: 3, Offset: offset,
			Graph: graph, Token: graph})
	}
	r.Trace = r.Trace[:0]
	for graph := range int64(30) {
		r.Trace = append(r.Trace, memrun.Access{NS: start + graph*second/30, Phase: "generation", Op: "read",
			Type: "weight", Collector: "graph", Size: 4000, Buffer: 1, Graph: graph, Token: graph})
		touch(graph, 1, 0, 600, "write")
		touch(graph, 1, 0, 600, "read")
		if graph < 2 {
			touch(graph, 2, 400, 600, "write")
		}
		if graph == 0 {
			touch(graph, 3, 1000, 77, "write")
		}
	}
	return r
}

// TestOneDefinition: what metrics.csv and suitability.csv both have is the same figure, of a run with a trace and
// of one without.
func TestOneDefinition(t *testing.T) {
	for _, trace := range []bool{true, false} {
		run := layered()
		if !trace {
			run.Trace = nil
		}
		r, err := Run(context.Background(), run.Write(t, t.TempDir()), Options{})
		if err != nil {
			t.Fatal(err)
		}
		metrics, labels := tableOf(t, filepath.Join(r.Out, "metrics.csv")),
			tableOf(t, filepath.Join(r.Out, "suitability.csv"))
		shared := 0
		for kind, row := range metrics {
			for column, value := range row {
				if other, ok := labels[kind][column]; ok {
					shared++
					if !same(other, value) {
						t.Errorf("trace %v: %s of %s is %s in metrics.csv and %s in suitability.csv", trace, column,
							kind, value, other)
					}
				}
			}
		}
		if shared != 2*8 || len(metrics) != 2 || len(labels) != 2 {
			t.Errorf("trace %v: %d cells compared of %v and %v", trace, shared, metrics, labels)
		}
		if once := metrics["activation"]["write_once_ratio"]; trace &&
			!same(once, strconv.FormatFloat(77./1077, 'g', -1, 64)) {
			t.Errorf("write-once ratio of activations: %s", once)
		}
	}
}

// same compares cells: numbers by ten digits.
func same(a, b string) bool {
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if err != nil || err2 != nil {
		return a == b
	}
	return math.Abs(x-y) <= 1e-9*math.Abs(x)
}

// tableOf reads a CSV file: cells by the first column and the name of theirs.
func tableOf(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatal(rows, err)
	}
	all := map[string]map[string]string{}
	for _, row := range rows[1:] {
		all[row[0]] = map[string]string{}
		for i, name := range rows[0] {
			all[row[0]][name] = row[i]
		}
	}
	return all
}

// TestRefusals: runs that are not sealed, contaminated, of another version, and classes that are not there.
func TestRefusals(t *testing.T) {
	bad := short(false)
	bad.Metadata = memory.Metadata{SchemaVersion: table.Version, Metadata: rundir.Metadata{Version: 1, RunID: "r"},
		Validity: memory.Validity{Class: memory.Contaminated}}
	contaminated := bad.Write(t, t.TempDir())
	foreign := short(false)
	foreign.Metadata = memory.Metadata{SchemaVersion: "9.0", Metadata: rundir.Metadata{Version: 1}}
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
