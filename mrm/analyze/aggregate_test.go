package analyze

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

const (
	second = int64(1e9)
	start  = int64(1_700_000_000) * second
)

// repetition is a run of a cell in which a weight was read for so many seconds.
func repetition(id, model string, context, number int, seconds int64, class memory.Class) *memrun.Run {
	ratio := 0.99
	m := memory.Metadata{
		SchemaVersion: table.Version,
		Metadata: rundir.Metadata{Version: 1, RunID: id, Model: rundir.Model{ID: model},
			Tokens: &rundir.Tokens{Prompt: 3, Generated: 7}},
		Experiment: memory.Experiment{Name: "sweep", Seed: 1, Repetitions: 3},
		Cell: memory.Cell{Key: fmt.Sprintf("%s-%d", model, context), ModelID: model, Prompt: "p0",
			NCtx: context, KVType: "f16", Repetition: number, MaxTokens: 7, Concurrency: 1},
		Observer: memory.Observer{DecodeRatio: &ratio,
			Tapped: memory.Pass{GeneratedTokens: 7, GenerationNS: seconds * second}},
		Validity: memory.Validity{Class: class},
	}
	r := &memrun.Run{
		Model: model, Metadata: &m,
		Regions: []memrun.Region{
			{ID: 0, Type: "weight", Name: "w", Layer: 0, Buffer: 1, Bytes: 4000, FirstRead: start,
				LastRead: start + seconds*second, Reads: 10, Read: 40000, Alloc: start},
			{ID: 1, Type: "kv_cache", Name: "cache_k_l0", KV: "k", Layer: 0, Buffer: 2, Bytes: 200, FirstWrite: start,
				LastWrite: start, FirstRead: start, LastRead: start + seconds*second, Writes: 2, Reads: 10,
				Written: 200, Read: 1000},
		},
		Lives: []memrun.Life{
			{Block: 0, KV: "k", CellBytes: 100, Cells: 1, Alloc: start, Write: start, Read: start + second,
				Evict: start + 2*second, Reason: "clear", Writes: 1, Reads: 2},
			{Block: 1, KV: "k", CellBytes: 100, Cells: 1, Alloc: start, Write: start, Read: start + seconds*second,
				Writes: 1, Reads: 10},
		},
	}
	r.Trace = append(r.Trace, memrun.Access{NS: start, Phase: "generation", Op: "write", Type: "kv_cache",
		Collector: "graph", Region: 1, Size: 200, Buffer: 2})
	for i := range int64(10) {
		at := start + i*seconds*second/9
		r.Trace = append(r.Trace,
			memrun.Access{NS: at, Phase: "generation", Op: "read", Type: "weight", Collector: "graph", Region: 0,
				Size: 4000, Buffer: 1, Graph: i, Token: i},
			memrun.Access{NS: at, Phase: "generation", Op: "read", Type: "kv_cache", Collector: "graph", Region: 1,
				Size: 100, Buffer: 2, Graph: i, Token: i})
	}
	return r
}

// sweep is a folder of results: two cells with three and one repetitions, and one run that is contaminated.
func sweep(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	for i, seconds := range []int64{10, 20, 30} {
		repetition(fmt.Sprint("r", i), "alpha", 128, i, seconds, memory.Clean).Write(t, out)
	}
	repetition("r3", "alpha", 256, 0, 40, memory.Marginal).Write(t, out)
	repetition("r4", "beta", 128, 0, 5, memory.Contaminated).Write(t, filepath.Join(out, "contaminated"))
	plain := &memrun.Run{Model: "gamma", Regions: []memrun.Region{{Type: "weight", Name: "w", Layer: -1, Buffer: 1,
		Bytes: 1, FirstRead: 1, LastRead: 2, Reads: 1, Read: 1}}}
	plain.Write(t, out) // of no experiment
	return out
}

func aggregated(t *testing.T, roots ...string) *Aggregated {
	t.Helper()
	found, err := Find(roots, false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Aggregate(context.Background(), found, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (g *cellGroup) row(kind, metric string) *statisticRow {
	for i := range g.Rows {
		if g.Rows[i].Type == kind && g.Rows[i].Metric == metric {
			return &g.Rows[i]
		}
	}
	return nil
}

// TestAggregate: means and intervals over repetitions, worked out by hand; what is contaminated is left out.
func TestAggregate(t *testing.T) {
	r := aggregated(t, sweep(t))
	if r.Runs != 4 || len(r.Groups) != 2 || len(r.Contaminated) != 1 || r.Contaminated[0] != "r4" || r.Others != 1 {
		t.Fatalf("%+v", r)
	}
	long := r.Groups[0]
	p99 := long.row("weight", "retention_p99_s")
	// 10, 20, 30: mean 20, deviation 10, and Student's t of two degrees of freedom is 4.30265.
	if p99 == nil || p99.N != 3 || p99.Mean != 20 || math.Abs(*p99.SD-10) > 1e-9 ||
		math.Abs(*p99.High-(20+4.30265272991*10/math.Sqrt(3))) > 1e-6 || p99.Min != 10 || p99.Max != 30 {
		t.Errorf("%+v", p99)
	}
	if rate := long.row("run", "decode_tokens_per_s"); rate == nil || math.Abs(rate.Max-0.7) > 1e-12 {
		t.Errorf("%+v", rate)
	}
	if label := long.row("weight", "mrm_label=high_mrm"); label == nil || label.Mean != 1 || label.N != 3 {
		t.Errorf("%+v", label)
	}
	one := r.Groups[1]
	if p := one.row("weight", "retention_p99_s"); one.Cell.NCtx != 256 || one.Marginal != 1 || p.N != 1 ||
		p.SD != nil || p.Mean != 40 {
		t.Errorf("%+v", one)
	}
}

// TestAll: contaminated runs are taken where they are asked for, and counted.
func TestAll(t *testing.T) {
	found, err := Find([]string{sweep(t)}, true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Aggregate(context.Background(), found, nil)
	if err != nil || r.Runs != 5 || len(r.Groups) != 3 || len(r.Contaminated) != 0 || r.Groups[2].Contaminated != 1 ||
		r.Groups[2].Cell.ModelID != "beta" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestShares: a label that some runs have is a share of all of them.
func TestShares(t *testing.T) {
	out := t.TempDir()
	for i, seconds := range []int64{1, 30, 30, 2} {
		repetition(fmt.Sprint("r", i), "alpha", 128, i, seconds, memory.Clean).Write(t, out)
	}
	g := aggregated(t, out).Groups[0]
	high := g.row("weight", "mrm_label=high_mrm")
	if high == nil || high.N != 4 || high.Mean != 0.5 || high.Method != wilson || high.SD != nil || high.Min != 0 ||
		high.Max != 1 {
		t.Errorf("%+v", high)
	}
	for i := range g.Rows { // no figure of a run is negative, and none of these above 1
		row := &g.Rows[i]
		ratio := row.Method == wilson || row.Metric == "write_once_ratio" || row.Metric == "censored_share" ||
			row.Metric == "locality_score"
		if *row.Low < 0 || *row.Low > row.Mean || *row.High < row.Mean || ratio && *row.High > 1 {
			t.Errorf("%s %s: %v in [%v, %v]", row.Type, row.Metric, row.Mean, *row.Low, *row.High)
		}
	}
}

// TestForms: what is written reads back.
func TestAggregateForms(t *testing.T) {
	r := aggregated(t, sweep(t))
	var text, table, js, parquet bytes.Buffer
	for _, err := range []error{r.WriteText(&text), r.WriteCSV(&table), r.WriteJSON(&js), r.WriteParquet(&parquet)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(rows) < 20 || len(rows[0]) != len(aggregateColumns) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	var back Aggregated
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Groups) != 2 ||
		back.Groups[0].row("weight", "retention_p99_s").Method != studentT {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"4 runs in 2 cells", "20 [0, 44.84]", "(3 of 3)", "(one run)", "1 contaminated"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if !bytes.HasPrefix(parquet.Bytes(), []byte("PAR1")) {
		t.Error("no Parquet file")
	}
}

// TestRefusals: a flipped byte, a file that is gone, a foreign version: the whole aggregate is refused, with the
// file's name.
func TestAggregateRefusals(t *testing.T) {
	flip := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		want   string
		is     error
	}{
		"flipped byte of a table": {flip(rundir.RegionsName), rundir.RegionsName, errDamaged},
		"flipped byte of a trace": {flip(rundir.TraceName), rundir.TraceName, errDamaged},
		"file that is gone": {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, rundir.TraceName)) },
			rundir.TraceName, errDamaged},
	} {
		out := sweep(t)
		dirs, _ := filepath.Glob(filepath.Join(out, "alpha", "run_*"))
		c.change(t, dirs[0])
		if _, err := Find([]string{out}, false); err == nil || !errors.Is(err, c.is) ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	out := t.TempDir()
	foreign := repetition("r0", "alpha", 128, 0, 10, memory.Clean)
	foreign.Version = "3.1"
	foreign.Write(t, out)
	if _, err := Find([]string{out}, false); !errors.Is(err, table.ErrVersion) ||
		!strings.Contains(err.Error(), ".parquet") {
		t.Errorf("tables of version 3: %v", err)
	}
	out = t.TempDir()
	alien := repetition("r0", "alpha", 128, 0, 10, memory.Clean)
	alien.Metadata.(*memory.Metadata).SchemaVersion = "3.0"
	alien.Write(t, out)
	if _, err := Find([]string{out}, false); !errors.Is(err, memory.ErrVersion) ||
		!strings.Contains(err.Error(), rundir.MetadataName) {
		t.Errorf("metadata of version 2: %v", err)
	}
	if _, err := Find([]string{filepath.Join(out, "nothing")}, false); err == nil {
		t.Error("a folder that is not there")
	}
	empty, err := Find([]string{t.TempDir()}, false)
	if err == nil {
		_, err = Aggregate(context.Background(), empty, nil)
	}
	if !errors.Is(err, errNoRuns) {
		t.Errorf("no runs: %v", err)
	}
}

// TestDataset: a dataset has the same figures as what it was copied from, once each, and is checked as runs are.
func TestDataset(t *testing.T) {
	out, dataset := sweep(t), t.TempDir()
	found, err := Find([]string{out}, false)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := ExportDataset(found.Runs, dataset); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := ExportDataset(found.Runs, dataset); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
	foreign := found.Runs[0] // whose metadata somebody changed
	foreign.Cell.ModelID = "x/../../outside"
	nested := filepath.Join(t.TempDir(), "dataset")
	if n, err := ExportDataset([]SealedRun{foreign}, nested); n != 0 || err == nil {
		t.Errorf("a model id that leaves the dataset: %d, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(nested), "outside")); err == nil {
		t.Error("a run was copied out of the dataset")
	}
	var want, got bytes.Buffer
	if err := errors.Join(aggregated(t, out).WriteCSV(&want), aggregated(t, dataset).WriteCSV(&got)); err != nil ||
		want.String() != got.String() {
		t.Errorf("%v\n%s\nwant\n%s", err, got.String(), want.String())
	}
	leaves, _ := filepath.Glob(filepath.Join(dataset, "model_id=alpha", "run_id=*", rundir.TraceName))
	if len(leaves) != 4 {
		t.Fatalf("%d leaves", len(leaves))
	}
	if err := os.Truncate(leaves[1], 50); err != nil {
		t.Fatal(err)
	}
	if _, err := Find([]string{dataset}, false); !errors.Is(err, errDamaged) {
		t.Errorf("a leaf that is cut: %v", err)
	}
	if _, err := ExportDataset(found.Runs[:1], filepath.Join(dataset, "model_id=alpha")); err != nil {
		t.Errorf("another folder: %v", err)
	}
}

// TestStatistic: single and equal figures have no noise from rounding; an interval stays in the range of its figure.
func TestStatistic(t *testing.T) {
	if s := meanOf([]float64{0.1, 0.1, 0.1}, 1); s.Mean != 0.1 || *s.SD != 0 || *s.Low != 0.1 || *s.High != 0.1 {
		t.Errorf("%+v", s)
	}
	if s := meanOf([]float64{3}, math.Inf(1)); s.Mean != 3 || s.SD != nil || s.N != 1 || s.Method != "" ||
		s.Low != nil {
		t.Errorf("%+v", s)
	}
	if s := meanOf([]float64{0, 0, 1}, 1); *s.Low != 0 || *s.High != 1 || s.Method != studentT {
		t.Errorf("%+v", s)
	}
}

// TestWilson compares every share of up to 30 runs with SciPy's interval.
func TestWilson(t *testing.T) {
	python := testenv.NeedPython(t, "scipy")
	out, err := exec.Command(python, "-c", `
import json
from scipy.stats import binomtest
def interval(k, n):
    ci = binomtest(k, n).proportion_ci(0.95, method="wilson")
    return [k, n, ci.low, ci.high]
print(json.dumps([interval(k, n) for n in range(1, 31) for k in range(n + 1)]))`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all [][4]float64
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 495 {
		t.Fatalf("%d, %v", len(all), err)
	}
	for _, want := range all {
		s := shareOfRuns(int(want[0]), int(want[1]))
		if math.Abs(*s.Low-want[2]) > 1e-9 || math.Abs(*s.High-want[3]) > 1e-9 || *s.Low < 0 || *s.High > 1 {
			t.Errorf("%v of %v: [%v, %v], want [%v, %v]", want[0], want[1], *s.Low, *s.High, want[2], want[3])
		}
	}
}

// TestFigures: each drawn metric has a mean and an interval for each cell, cells are named by what distinguishes
// them, and contaminated runs are marked.
func TestFigures(t *testing.T) {
	out := sweep(t)
	found, err := Find([]string{out}, true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Aggregate(t.Context(), found, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := r.Figures()
	if len(all) < 3 || all[0].Name != "sweep_retention_p99_s" || all[0].Warning == "" {
		t.Fatalf("%+v", all)
	}
	if want := []string{"alpha, context 128 (n = 3)", "alpha, context 256 (n = 1)",
		"beta, context 128 (n = 1)"}; !slices.Equal(all[0].Names, want) {
		t.Errorf("%q", all[0].Names)
	}
	for _, m := range all[0].Means {
		if m.Type == "weight" && m.Cell == 0 && (m.Mean != 20 || *m.Low != 0 || *m.High < 44.8) || m.Cell > 0 &&
			m.Low != nil {
			t.Errorf("%+v", m)
		}
	}
	if clean := aggregated(t, out).Figures(); clean[0].Warning != "" ||
		!strings.Contains(clean[0].Title, "sweep, alpha") {
		t.Errorf("%+v", clean[0])
	}
	dir := t.TempDir()
	paths, err := DrawAcross(all, dir, []string{"svg", "pdf"})
	isDrawn := func(a metricFigure) bool { return len(a.Means) > 0 }
	if n := len(slices.DeleteFunc(slices.Clone(all), func(a metricFigure) bool { return !isDrawn(a) })); err != nil ||
		n < 4 || len(paths) != 2*n {
		t.Fatal(n, paths, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sweep_retention_p99_s.svg"))
	for _, want := range []string{all[0].Warning, all[0].Label, all[0].Note, "context 256 (n = 1)", "kv_cache"} {
		if err != nil || !strings.Contains(html.UnescapeString(string(text)), want) {
			t.Errorf("no %q in the picture, %v", want, err)
		}
	}
}

// TestLabelFigures: the share of runs with a label has the interval of the table, and is 0 with an interval in
// cells whose runs have other labels.
func TestLabelFigures(t *testing.T) {
	group := func(prompt, experiment string, rows ...statisticRow) cellGroup {
		return cellGroup{Experiment: experiment,
			Cell: matrixCell{Key: prompt, ModelID: "m", Prompt: prompt, KVType: "f16"}, Runs: make([]string, 3),
			Rows: rows}
	}
	high, medium := statisticRow{"weight", labelled + "high_mrm", shareOfRuns(2, 3)},
		statisticRow{"weight", labelled + "medium_mrm", shareOfRuns(1, 3)}
	other := statisticRow{"weight", labelled + "medium_mrm", shareOfRuns(3, 3)}
	bytes := statisticRow{"weight", "bytes", meanOf([]float64{1, 2, 3}, 9)}
	r := &Aggregated{Groups: []cellGroup{group("a", "../x", high, medium), group("b", "../x", other),
		group("c", "../x", bytes)}}
	seen := map[string][]sheet.CellMean{}
	for _, a := range r.Figures() {
		if filepath.Base(a.Name) != a.Name || strings.HasPrefix(a.Name, ".") {
			t.Errorf("%q leaves its folder", a.Name)
		}
		for _, m := range a.Means {
			if m.Low == nil || m.High == nil {
				t.Errorf("%s: %+v has no interval", a.Name, m)
			}
		}
		seen[a.Label] = a.Means
	}
	zero, got := shareOfRuns(0, 3), seen["share of runs labelled high_mrm"]
	if len(got) != 2 || got[0].Mean != high.Mean || *got[0].Low != *high.Low || *got[0].High != *high.High ||
		got[1].Cell != 1 || got[1].Mean != 0 || *got[1].High != *zero.High {
		t.Errorf("%+v", got)
	}
	if got := seen["share of runs labelled low_mrm"]; len(got) != 0 {
		t.Errorf("%+v: no run has the label", got)
	}
}

// TestCellNames: cells have different names, whatever they differ in.
func TestCellNames(t *testing.T) {
	groups := []cellGroup{{Cell: matrixCell{Key: "1", ModelID: "m", NCtx: 0}},
		{Cell: matrixCell{Key: "2", ModelID: "m", NCtx: 512}}, {Cell: matrixCell{Key: "3", ModelID: "m", NCtx: 512}}}
	names, _ := cellNames(groups)
	if slices.Sort(names); len(slices.Compact(names)) != 3 ||
		!strings.Contains(strings.Join(names, "\n"), "the model's context") {
		t.Errorf("%q", names)
	}
}
