package table

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

const readNumbers = `
import sys, math, pyarrow as pa, pyarrow.parquet as pq, duckdb
want = [None if i % 3 == 1 else [0.1, -1e300, 5e-324, math.inf, -0.0, math.nan][i % 6] for i in range(100)]
def same(a, b):
    if a is None or b is None:
        return a is b
    return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b
for table in pq.read_table(sys.argv[1]), pa.ipc.open_file(sys.argv[2]).read_all():
    assert str(table.schema.field("x").type) == "double" and not table.schema.field("n").nullable, table.schema
    assert all(map(same, table["x"].to_pylist(), want)) and table["n"].to_pylist() == [i / 7 for i in range(100)]
rows = duckdb.sql(f"select x, n from '{sys.argv[1]}'").fetchall()
assert all(same(x, w) for (x, _), w in zip(rows, want)) and [n for _, n in rows] == [i / 7 for i in range(100)]
assert duckdb.sql(f"select count(*) from '{sys.argv[1]}' where n > 14").fetchall() == [(1,)]
`

// TestNumbers: pyarrow and DuckDB read numbers as they were, with those that are none, in Parquet and Arrow files.
func TestNumbers(t *testing.T) {
	python := testenv.NeedPython(t, "pyarrow.parquet", "duckdb")
	s := Schema{Columns: []Column{{Name: "x", Kind: Float64, Null: true}, {Name: "n", Kind: Float64}}}
	b := NewBatch(s)
	for i := range 100 {
		if i%3 != 1 {
			v := []float64{0.1, -1e300, 5e-324, math.Inf(1), math.Copysign(0, -1), math.NaN()}[i%6]
			b.Int(0, int64(math.Float64bits(v)))
		}
		b.Int(1, int64(math.Float64bits(float64(i)/7)))
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	args := []string{"-c", readNumbers}
	for _, format := range []string{"parquet", "arrow"} {
		var file bytes.Buffer
		var out writer
		var err error
		if format == "parquet" {
			out, err = NewParquet(&file, s)
		} else {
			out, err = NewArrow(&file, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "x."+format)
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if text, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}
