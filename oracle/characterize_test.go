//go:build linux

package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestCharacterization makes the small data set twice. Every column that is no time is equal, DuckDB and numpy compute
// the rows and the medians of the card again from the traces, the notebook runs, and a run is exported as mrm-trace's.
func TestCharacterization(t *testing.T) {
	testenv.Slow(t) // about two minutes
	python := testenv.NeedPython(t, "duckdb", "pandas", "numpy", "pyarrow.parquet")
	llamatap := testenv.NeedBinary(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		cmd := exec.Command(filepath.Join(testenv.Root(t), "scripts", "dataset"), "small")
		cmd.Env = append(os.Environ(), "LLAMATAP="+llamatap, "DATASET_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	out, err := exec.Command(python, filepath.Join("testdata", "dataset.py"), dirs[0], dirs[1]).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	script, cells := notebook(t, "dataset.ipynb")
	cmd := exec.Command(python, "-W", "error", "-c", script)
	cmd.Dir = filepath.Join(dirs[0], "dataset")
	if out, err := cmd.CombinedOutput(); err != nil || cells < 6 || !strings.Contains(string(out),
		"153 rows of 17 runs") {
		t.Errorf("%d cells: %v\n%s", cells, err, out)
	}
	runs, err := filepath.Glob(filepath.Join(dirs[0], "results", "*", "*", "*", "trace.parquet"))
	if err != nil || len(runs) == 0 {
		runs, _ = filepath.Glob(filepath.Join(dirs[0], "results", "*", "*", "trace.parquet"))
	}
	if len(runs) == 0 {
		t.Fatal("no run")
	}
	exported := filepath.Join(t.TempDir(), "exported")
	out, err = exec.Command(llamatap, "export", filepath.Dir(runs[0]), "--to", "mrm-trace", "-o",
		exported).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
