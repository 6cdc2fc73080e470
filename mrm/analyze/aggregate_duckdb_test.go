package analyze

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

const queries = `
import sys, json, duckdb
answers = []
for query in json.load(sys.stdin):
    rows = duckdb.sql(query)
    answers.append({"columns": rows.columns, "rows": [[str(v) for v in row] for row in rows.fetchall()]})
import pandas, pyarrow.parquet as pq
d = pq.read_table("aggregate/aggregate.parquet").to_pandas()
assert str(d["mean"].dtype) == "float64" and d["sd"].isna().any() and (d.n > 0).all(), d.dtypes
c = pandas.read_csv("aggregate/aggregate.csv")
assert (c["mean"] == d["mean"]).all() and list(c.columns) == list(d.columns)
json.dump(answers, sys.stdout)
`

// TestQueries runs every query of docs/MRM_DATA.md over a dataset.
func TestQueries(t *testing.T) {
	python := testenv.NeedPython(t, "duckdb", "pyarrow.parquet", "pandas")
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "MRM_DATA.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		all = append(all, block[1])
	}
	dir := t.TempDir()
	found, err := Find([]string{sweep(t)}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ExportDataset(found.Runs, filepath.Join(dir, "dataset")); err != nil {
		t.Fatal(err)
	}
	writeAll(t, found, filepath.Join(dir, "aggregate"))
	answers := ask(t, python, dir, all)
	for i, want := range []struct {
		begins string
		rows   int
		has    []string
	}{
		{"-- mean and deviation", 40, []string{"retention_p99_s 3 20.0 10.0", "decode_tokens_per_s"}},
		{"-- where the bytes go", 2, []string{"alpha", "weight", "16000",
			"160000"}}, // 4 runs of 4000 bytes, read ten times each
		{"-- for how long cells", 1, []string{"alpha", "8",
			"0.5"}}, // 2 lives each, one of them censored
		{"-- Kaplan and Meier", 5, []string{"1.0", "0.5",
			"40.0"}}, // half of all lives end at 1 s, the others go on
		{"-- bytes read per token", 4 * 10 * 2, []string{"weight", "4000", "100"}},         //
		{"-- read:write", 4, []string{"read"}},                                             //
		{"-- which cell", 4, []string{"sweep", "alpha", "256", "marginal", "clean", "r3"}}, //
		{"-- figures with", 4, []string{"20.0", "40.0", "None"}},                           // two cells, two types
	} {
		if i >= len(answers) {
			t.Fatalf("%d queries", len(answers))
		}
		joined := ""
		for _, row := range answers[i].Rows {
			joined += " " + strings.Join(row, " ") + " "
		}
		if !strings.HasPrefix(all[i], want.begins) || len(answers[i].Rows) < want.rows {
			t.Errorf("%s: %d rows, want %d: %s", want.begins, len(answers[i].Rows), want.rows, all[i])
		}
		for _, has := range want.has {
			if !strings.Contains(joined, " "+has+" ") && !strings.Contains(joined, has) {
				t.Errorf("%s: no %s in %s", want.begins, has, joined)
			}
		}
	}
	if len(answers) != 8 {
		t.Errorf("%d queries, each wants an answer that is known", len(answers))
	}
}

// writeAll writes the aggregate as the command does.
func writeAll(t *testing.T, found *Found, dir string) {
	t.Helper()
	r, err := Aggregate(t.Context(), found, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(f *os.File) error{
		"aggregate.csv":     func(f *os.File) error { return r.WriteCSV(f) },
		"aggregate.parquet": func(f *os.File) error { return r.WriteParquet(f) },
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := write(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.WriteRuns(dir); err != nil {
		t.Fatal(err)
	}
}

// ask lets DuckDB answer queries in a folder.
func ask(t *testing.T, python, dir string, all []string) (answers []answer) {
	t.Helper()
	asked, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", queries)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(asked)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

// answer is what DuckDB said.
type answer struct {
	Columns []string
	Rows    [][]string
}
