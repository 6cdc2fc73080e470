package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
)

// marksOf reads a sealed run's markers.
func marksOf(t *testing.T, dir string) []memtrace.Mark {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, rundir.MarksName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	marks, err := memtrace.ReadMarks(file)
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

// weights are the samples of a phase in weights; -1: there is no such phase.
func weights(r *memory.Report, phase string) (n int64) {
	i := slices.IndexFunc(r.Phases, func(p memory.Phase) bool { return p.Name == phase })
	if i < 0 {
		return -1
	}
	for _, s := range r.Phases[i].Samples {
		if s.Type == memtrace.Weight.String() {
			n += s.Samples
		}
	}
	return n
}

// TestMarkers: a program that sets markers has their phases in its rows, by their times, and what it did between
// two of them counts for the first.
func TestMarkers(t *testing.T) {
	program, model := loader(t)
	script := fmt.Sprintf(
		"set -e; mark() { %q memory mark \"$1\" 2>&1; }; mark loading; %q %q; "+
			"mark 'own name'; mark decode; %q %q; mark loading; %q %q",
		testenv.NeedBinary(t), program, model, program, model, program, model)
	cmd := exec.Command("sh", "-c", script)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, Command: cmd,
		Out: t.TempDir()})
	allowed(t, err)
	<-result.Ended
	if code := result.Exit().ExitCode(); code != 0 {
		t.Fatalf("status %d: %s", code, said.String())
	}
	marks := marksOf(t, result.Dir)
	var names []string
	for _, m := range marks {
		names = append(names, m.Name)
		if m.Inferred || m.MonoNS == 0 {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"loading", "own name", "decode", "loading"}; !slices.Equal(names, want) {
		t.Fatalf("markers %q, want %q", names, want)
	}
	rows := columns(t, filepath.Join(result.Dir, rundir.TraceName), "ts_ns", "phase", "step")
	for i, ns := range rows["ts_ns"] {
		var want memtrace.Mark
		if at := memtrace.MarkAt(marks, ns.(int64)); at >= 0 {
			want = marks[at]
		}
		if rows["phase"][i] != want.Phase || rows["step"][i] != want.Step {
			t.Fatalf("row %d is of phase %q, step %q, its marker is %+v", i, rows["phase"][i], rows["step"][i], want)
		}
	}
	report, err := memory.Analyze(t.Context(), result.Dir, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all int64
	for _, p := range report.Phases {
		for _, s := range p.Samples {
			all += s.Samples
		}
		if p.Inferred || p.Seconds <= 0 {
			t.Errorf("%+v", p)
		}
	}
	before, loading, own, decode := weights(report, ""), weights(report, "loading"), weights(report, "own name"),
		weights(report, "decode")
	if before != 0 || own != 0 || decode <= 0 || loading <= decode || all != report.Rows {
		t.Errorf("page faults in the model: %d before, %d while loading twice, %d in a phase of its own, %d in "+
			"decode; %d of %d rows have a phase", before, loading, own, decode, all, report.Rows)
	}
	if found, err := rundir.Verify(result.Dir); err != nil || !found.Sealed ||
		len(found.Missing)+len(found.Changed)+len(found.Extra) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, _, err := Mark(result.Dir, "late"); !errors.Is(err, control.ErrEnded) {
		t.Errorf("a marker behind the end: %v", err)
	}
}

// TestInferredLoading: where nobody sets a marker, loading ends with the last page fault in a model's file, and
// every file and export says that this is inferred.
func TestInferredLoading(t *testing.T) {
	program, model := loader(t)
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}},
		Command: exec.Command(program, model, "sleep"), Out: t.TempDir()})
	allowed(t, err)
	<-result.Ended
	marks := marksOf(t, result.Dir)
	if len(marks) != 2 || !marks[0].Inferred || !marks[1].Inferred || marks[0].Phase != "weight_load" ||
		marks[1].Phase != "generation" {
		t.Fatalf("%+v", marks)
	}
	rows := columns(t, filepath.Join(result.Dir, rundir.TraceName), "ts_ns", "phase", "region_type")
	last := int64(0)
	for i, ns := range rows["ts_ns"] {
		if rows["phase"][i] != "" {
			t.Fatalf("row %d has phase %q, which nobody has set", i, rows["phase"][i])
		}
		if rows["region_type"][i] == "weight" {
			last = max(last, ns.(int64))
		}
	}
	if marks[1].TimeNS != last+1 {
		t.Errorf("loading ends at %d, the last page fault in the model was at %d", marks[1].TimeNS, last)
	}
	report, err := memory.Analyze(t.Context(), result.Dir, memory.Options{})
	if err != nil || len(report.Phases) != 2 || !report.Phases[0].Inferred || !report.Phases[1].Inferred ||
		weights(report, "loading") <= 0 || weights(report, "generation") != 0 {
		t.Errorf("%+v, %v", report.Phases, err)
	}
	exported, err := export.MRMTrace(t.Context(), result.Dir, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(exported.Path, "metadata.json"))
	if err != nil || !strings.Contains(string(text), `"llamatap_phases_inferred": true`) {
		t.Errorf("%s, %v", text, err)
	}
	for i, phase := range columns(t, filepath.Join(exported.Path, "trace.parquet"), "phase")["phase"] {
		if phase != "weight_load" && phase != "generation" {
			t.Fatalf("row %d of the export is of phase %q", i, phase)
		}
	}
}

// TestNothingInferred: loading has no end where page faults in the model go on until the last quarter, where there
// are none, or where there is a marker.
func TestNothingInferred(t *testing.T) {
	weight, heap := memtrace.Region{Type: memtrace.Weight}, memtrace.Region{Type: memtrace.Runtime}
	feed := func(p *phases, region *memtrace.Region, from memtrace.Collector, times ...int64) *phases {
		for _, ns := range times {
			row := sample.Row{Access: memtrace.Access{Collector: from}, Hit: memtrace.Hit{Region: region}}
			p.apply(&row, ns)
		}
		return p
	}
	const fault = memtrace.CollectorFault
	for name, c := range map[string]struct {
		p    *phases
		ends int64
	}{
		"an end":         {feed(feed(&phases{}, &heap, fault, 1000, 2000), &weight, fault, 1100, 1750), 1751},
		"until the last": {feed(feed(&phases{}, &heap, fault, 1000, 2000), &weight, fault, 1100, 1751), 0},
		"no model":       {feed(&phases{}, &heap, fault, 1000, 2000), 0},
		"loads":          {feed(feed(&phases{}, &heap, fault, 1000, 2000), &weight, memtrace.CollectorPerf, 1100), 0},
		"a marker": {feed(feed(&phases{marks: []memtrace.Mark{{Name: "own", TimeNS: 1 << 40}}}, &heap, fault,
			1000, 2000), &weight, fault, 1100), 0},
	} {
		marks := c.p.infer()
		if c.ends == 0 && marks != nil || c.ends != 0 && (len(marks) != 2 || marks[1].TimeNS != c.ends ||
			marks[0].TimeNS != 1000) {
			t.Errorf("%s: %+v", name, marks)
		}
	}
}

// TestMarkRefused: without a live recording there is no marker.
func TestMarkRefused(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{folder, filepath.Join(folder, "none")} {
		if _, _, err := Mark(path, "decode"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, _, err := Mark(folder, "two\nlines"); !errors.Is(err, memtrace.ErrMark) {
		t.Errorf("%v", err)
	}
}
