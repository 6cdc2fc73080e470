package analyze

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/table"
)

// TestRunValues: each run's figures are in the partition of its cell, once, and what an earlier call wrote is gone.
func TestRunValues(t *testing.T) {
	results, out := t.TempDir(), t.TempDir()
	for i, kv := range []string{"f16", "f16", "q8_0/f16", ""} {
		run := repetition(fmt.Sprint("r", i), "a b=c+d:é%", 128, i, []int64{10, 20, 30, 1}[i], memory.Clean)
		run.Metadata.(*memory.Metadata).Cell.KVType = kv
		run.Model = "m"
		run.Write(t, results)
	}
	stale := filepath.Join(out, "run_values", "model_id=old", "values.parquet")
	if err := os.MkdirAll(filepath.Dir(stale), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, []byte("PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := aggregated(t, results).WriteRuns(out); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	files, err := filepath.Glob(filepath.Join(out, "run_values", "*", "*", "*", "*", "*.parquet"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for kv, want := range map[string]string{"f16": "r0 high_mrm, r1 high_mrm", "q8_0%2Ff16": "r2 high_mrm",
		"__HIVE_DEFAULT_PARTITION__": "r3 medium_mrm"} {
		path := filepath.Join(out, "run_values", "model_id=a%20b%3Dc%2Bd%3A%C3%A9%25", "n_ctx=128", "kv_type="+kv,
			"concurrency=1", "values.parquet")
		if got := labelsOf(t, path); got != want {
			t.Errorf("%s: %s, want %s", kv, got, want)
		}
	}
}

// labelsOf are the runs of a file of run_values with the labels of their weights.
func labelsOf(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := table.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) table.Values {
		values, err := reader.Column(0, name)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	ids, kinds, metrics, labels := column("run_id"), column("region_type"), column("metric"), column("label")
	var found []string
	for i := range ids.Texts {
		if kinds.Texts[i] == "weight" && metrics.Texts[i] == "mrm_label" {
			found = append(found, ids.Texts[i]+" "+labels.Texts[i])
		}
	}
	return strings.Join(found, ", ")
}
