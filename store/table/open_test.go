package table

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// partOf is a part's name.
func partOf(number int) string {
	if number == 0 {
		return "trace.parquet" // the first may have the plain name
	}
	return partName("trace", number)
}

// writePart writes a part of a table: rows with the numbers from first to end-1.
func writePart(t *testing.T, folder string, part, first, end int, about string) {
	t.Helper()
	s := Schema{Columns: []Column{{Name: "n", Kind: Int64}, {Name: "t", Kind: Text}},
		Metadata: [][2]string{{"about", about}}}
	f, err := os.Create(filepath.Join(folder, partOf(part)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, err := NewParquet(f, s)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(s)
	for i := first; i < end; i++ {
		b.Int(0, int64(i))
		b.Text(1, fmt.Sprint(i%17))
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Append(b), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestOpen: parts are one table, in the order of their numbers also after the thousandth, for us and for DuckDB;
// what is missing is reported.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, "trace.parquet"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	parts := []int{0, 1, 2, 10, 999, 1000, 1001}
	for i, part := range parts {
		writePart(t, dir, part, 100*i, 100*i+100, fmt.Sprint(part))
	}
	for _, other := range []string{"trace.1.parquet", "trace.01.parquet", "trace.-01.parquet", "trace.001.parquet.tmp",
		".trace.003.parquet.part", "traces.parquet"} {
		if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, err := Open(dir, "trace.parquet")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	paths, err := Paths(dir, "trace")
	if err != nil || len(paths) != len(parts) || filepath.Base(paths[0]) != "trace.parquet" ||
		filepath.Base(paths[6]) != "trace.1001.parquet" {
		t.Errorf("%q: %v", paths, err)
	}
	if about, _ := table.Metadata("about"); about != "1001" || table.Rows() != 700 ||
		len(table.Missing) != 1002-len(parts) || !slices.Contains(table.Missing, "trace.003.parquet") {
		t.Errorf("%d rows, last part %s, %d missing", table.Rows(), about, len(table.Missing))
	}
	scan, err := table.Scan([]string{"t", "n"}, ScanOptions{Ahead: 1, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		rows, err := scan.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range rows.Columns[1].Ints {
			if v != int64(n) || rows.Columns[0].Text(i) != fmt.Sprint(n%17) || rows.File != n/100 {
				t.Fatalf("row %d of file %d is %d, %q", n, rows.File, v, rows.Columns[0].Text(i))
			}
			n++
		}
	}
	if err := errors.Join(scan.Close(), scan.Close()); err != nil || n != 700 {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := scan.Next(); err == nil {
		t.Error("rows of a scan that is closed")
	}
	python := testenv.NeedPython(t, "duckdb")
	script := "import sys, duckdb; assert duckdb.execute('select count(*), sum(n) from read_parquet(?)', " +
		"[sys.argv[1:]]).fetchone() == (700, 699 * 350)"
	if out, err := exec.Command(python, append([]string{"-c", script}, paths...)...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestScanEnds: a scan that is closed before its end stops, and one of damaged rows says where they are.
func TestScanEnds(t *testing.T) {
	dir := t.TempDir()
	for part := range 3 {
		writePart(t, dir, part, 0, 300000, "")
	}
	table, err := Open(dir, "trace")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	scan, err := table.Scan([]string{"n"}, ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := scan.Next(); err != nil || rows.N != scanRows {
		t.Fatalf("%+v: %v", rows, err)
	}
	scan.Close()
	if _, err := table.Scan([]string{"n", "x"}, ScanOptions{}); !errors.Is(err, ErrTable) {
		t.Errorf("%v", err)
	}
	damaged := filepath.Join(dir, partName("trace", 1))
	text, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	text[1000] ^= 1
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	scan, err = table.Scan([]string{"n"}, ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer scan.Close()
	n := 0
	for err == nil {
		var rows *Rows
		if rows, err = scan.Next(); err == nil {
			n += rows.N
		}
	}
	if !errors.Is(err, ErrTable) || n != 300000 {
		t.Errorf("%d rows, then %v", n, err)
	}
}
