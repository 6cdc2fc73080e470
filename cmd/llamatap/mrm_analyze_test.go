package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// measured is a run of the experiment e, in which a weight was read for 20 s.
func measured(t *testing.T, out string, class memory.Class) string {
	t.Helper()
	const start, second = int64(1_700_000_000e9), int64(1e9)
	r := memrun.Run{Model: "m", Regions: []memrun.Region{
		{ID: 0, Type: "weight", Name: "w", Layer: -1, Buffer: 1, Bytes: 4000, FirstRead: start,
			LastRead: start + 20*second, Reads: 11, Read: 44000},
	}}
	r.Metadata = memory.Metadata{
		SchemaVersion: table.Version, Metadata: rundir.Metadata{Version: 1, RunID: "r_" + string(class),
			Model: rundir.Model{ID: "m"}},
		Experiment: memory.Experiment{Name: "e"}, Cell: memory.Cell{Key: "k", ModelID: "m", Prompt: "p0"},
		Validity: memory.Validity{Class: class},
	}
	return r.Write(t, out)
}

// TestAnalyzeRuns analyses runs one by one and by their experiment, whose thresholds hold; contaminated ones are
// refused, or left out.
func TestAnalyzeRuns(t *testing.T) {
	folder := t.TempDir()
	out := filepath.Join(folder, "results")
	clean, bad := measured(t, out, memory.Clean), measured(t, filepath.Join(out, "contaminated"), memory.Contaminated)
	text, err := self("mrm", "analyze", clean, "--classes", "pcm,hbm2", "--figures", "svg").Output()
	if err != nil || !strings.Contains(string(text), "high_mrm") || !strings.Contains(string(text), "as_it_is") ||
		strings.Contains(string(text), "rram") {
		t.Errorf("%v: %s", err, text)
	}
	for _, name := range []string{"metrics.csv", "whatif.csv", "whatif.json", "sensitivity.csv", "suitability.svg"} {
		if info, err := os.Stat(filepath.Join(clean, "derived", "mrm", name)); err != nil || info.Size() < 50 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := self("mrm", "analyze", bad).CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "--contaminated analyses it all the same") {
		t.Errorf("contaminated: %s", text)
	}
	config := filepath.Join(folder, "e.yaml")
	yaml := "experiment: {name: e}\nworkload: {prompts: [a]}\noutput: {dir: " + out +
		"}\nanalysis: {thresholds: {high_retention_s: 30}}\n"
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := self("mrm", "analyze", "--config", config, "--no-figures", "--json")
	var problems strings.Builder
	cmd.Stderr = &problems
	js, err := cmd.Output()
	var report struct {
		Labels []struct {
			Label string `json:"mrm_label"`
		}
	}
	if err != nil || json.Unmarshal(js, &report) != nil || len(report.Labels) != 1 ||
		report.Labels[0].Label != "medium_mrm" || !strings.Contains(problems.String(), "left out") {
		t.Errorf("%v: %s%s", err, js, problems.String())
	}
	metadata := filepath.Join(bad, rundir.MetadataName)
	if grown, err := os.ReadFile(metadata); err != nil || os.WriteFile(metadata, append(grown, '\n'), 0o600) != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{bad}, {"--config", config}} {
		text, err := self(append([]string{"mrm", "analyze", "--contaminated", "--no-figures"}, args...)...).
			CombinedOutput()
		if err != nil || !strings.Contains(string(text), "DAMAGE   "+bad+": "+rundir.MetadataName) {
			t.Errorf("%q of a run that has changed: %v: %s", args, err, text)
		}
	}
	if err := os.RemoveAll(clean); err != nil {
		t.Fatal(err)
	}
	if text, err := self("mrm", "analyze", "--config", config, "--no-figures").
		CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "every run is contaminated and was left out (1)") {
		t.Errorf("nothing but contaminated runs: %v: %s", err, text)
	}
	if js, err := self("mrm", "analyze", "--list-classes", "--classes", "hbm2").
		Output(); err != nil || !strings.Contains(string(js), "Fine-Grained DRAM") {
		t.Errorf("%v: %s", err, js)
	}
}

// TestAggregateRuns puts runs together, and makes a dataset of them that says the same.
func TestAggregateRuns(t *testing.T) {
	folder := t.TempDir()
	out, dataset, all := filepath.Join(folder, "results"), filepath.Join(folder, "dataset"),
		filepath.Join(folder, "all")
	measured(t, out, memory.Clean)
	measured(t, filepath.Join(out, "contaminated"), memory.Contaminated)
	first, err := self("mrm", "aggregate", out, "--format", "csv", "--dataset", dataset).Output()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(first))).ReadAll()
	if err != nil || len(rows) < 8 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if again, err := self("mrm", "aggregate", dataset, "--format", "csv").
		Output(); err != nil || string(again) != string(first) {
		t.Errorf("%v: %s", err, again)
	}
	if text, err := self("mrm", "aggregate", out, "--out", all).
		CombinedOutput(); err != nil || !strings.Contains(string(text), "1 run in 1 cell") {
		t.Errorf("%v: %s", err, text)
	}
	for _, name := range []string{"aggregate.csv", "aggregate.parquet", "aggregate.json"} {
		if info, err := os.Stat(filepath.Join(all, name)); err != nil || info.Size() < 100 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
