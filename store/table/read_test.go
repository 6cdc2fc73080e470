package table

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestReader reads what the writer wrote: every value of columns without lists, and texts that came at the end.
func TestReader(t *testing.T) {
	var b bytes.Buffer
	write(t, "parquet", &b)
	r, err := NewReader(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if about, ok := r.Metadata("about"); !ok || about != `{"n":1}` {
		t.Errorf("metadata %q, %v", about, ok)
	}
	if _, ok := r.Metadata("nothing"); ok || r.Rows() != 40 || r.Groups() != 2 {
		t.Errorf("%d rows in %d groups", r.Rows(), r.Groups())
	}
	row := 0
	for group := range r.Groups() {
		columns := map[string]Values{}
		for _, name := range []string{"i", "l", "u", "b", "t", "y"} {
			if columns[name], err = r.Column(group, name); err != nil {
				t.Fatal(err)
			}
		}
		for k := range columns["l"].Ints {
			null := row%3 == 0
			is := []any{columns["i"].Ints[k], columns["l"].Ints[k], columns["u"].Ints[k], columns["b"].Ints[k],
				columns["t"].Texts[k], columns["y"].Ints[k]}
			want := []any{int64(-row), int64(row) << 40, int64(math.MaxUint32 - row), -int64(row),
				string([]rune("größe")[:row%5]), int64(row % 2)}
			if null {
				want = []any{int64(0), int64(row) << 40, int64(math.MaxUint32 - row), int64(0), "", int64(0)}
			}
			if !slices.Equal(is, want) || columns["i"].Valid[k] == null || !columns["l"].Valid[k] {
				t.Fatalf("row %d: %v, want %v", row, is, want)
			}
			row++
		}
	}
	if _, err := r.Column(0, "f"); row != 40 || !errors.Is(err, ErrTable) {
		t.Errorf("%d rows; a list: %v", row, err)
	}
}

// others lets pyarrow and DuckDB write one table in all ways that they have.
const others = `
import sys, os, pyarrow as pa, pyarrow.parquet as pq, duckdb
n = 30000
t = pa.table({"a": pa.array([None if i % 7 == 0 else i * 3 for i in range(n)], pa.int64()),
    "t": pa.array([str(i % 11) for i in range(n)]),
    "u": pa.array([None if i % 5 == 0 else 2**32 - 1 - i for i in range(n)], pa.uint32()),
    "y": pa.array([i % 3 == 0 for i in range(n)]),
    "w": pa.array([None if i % 4 == 0 else "text %d" % (i // 3) for i in range(n)]),
    "i": pa.array([-i for i in range(n)], pa.int32()), "x": pa.array([i / 2 for i in range(n)])})
def write(name, **how):
    pq.write_table(t, os.path.join(sys.argv[1], name), row_group_size=20000, **how)
for codec in ["snappy", "gzip", "lz4", "zstd", "none"]:
    write(codec, compression=codec, data_page_size=4096)
    write(codec + "-v2", compression=codec, data_page_size=4096, data_page_version="2.0")
write("plain", use_dictionary=False)
for texts in ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]:
    write(texts, use_dictionary=False, data_page_size=4096, column_encoding={"a": "DELTA_BINARY_PACKED",
        "u": "DELTA_BINARY_PACKED", "i": "DELTA_BINARY_PACKED", "t": texts, "w": texts, "y": "RLE"})
write("small-dictionary", dictionary_pagesize_limit=2000, data_page_size=2000)
write("brotli", compression="brotli")
write("split", use_dictionary=False, column_encoding={"i": "BYTE_STREAM_SPLIT"})
duckdb.sql("set threads = 1")
for codec in ["snappy", "zstd", "lz4_raw"]:
    duckdb.sql(f"copy (select * from t) to '{sys.argv[1]}/duckdb-{codec}' "
        f"(format parquet, codec {codec}, row_group_size 10000)")
`

// TestReadOthers reads what pyarrow and DuckDB write, in all ways that are known, and says what to do about the others.
func TestReadOthers(t *testing.T) {
	testenv.Once(t, "TestEveryKind")
	python := testenv.NeedPython(t, "pyarrow.parquet", "duckdb")
	dir := t.TempDir()
	if out, err := exec.Command(python, "-c", others, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 17 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		switch _, err := r.Column(0, "i"); file.Name() {
		case "brotli":
			if !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), "zstd") {
				t.Errorf("brotli: %v", err)
			}
		case "split":
			if !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), "encoding 9") {
				t.Errorf("split: %v", err)
			}
		default:
			readOther(t, file.Name(), r)
		}
	}
}

// readOther compares every value of a table of others.
func readOther(t *testing.T, name string, r *Reader) {
	t.Helper()
	if _, err := r.Column(0, "x"); !errors.Is(err, ErrTable) || r.Has("x") {
		t.Errorf("%s: floats: %v", name, err)
	}
	scan, err := NewScan([]*Reader{r}, []string{"a", "t", "u", "y", "w", "i"}, ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer scan.Close()
	row := 0
	for {
		rows, err := scan.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range rows.N {
			want := []any{int64(row * 3), fmt.Sprint(row % 11), int64(math.MaxUint32 - row), int64(0),
				fmt.Sprintf("text %d", row/3), int64(-row)}
			if row%7 == 0 {
				want[0] = nil
			}
			if row%5 == 0 {
				want[2] = nil
			}
			if row%3 == 0 {
				want[3] = int64(1)
			}
			if row%4 == 0 {
				want[4] = nil
			}
			for c, v := range rows.Columns {
				var got any
				switch {
				case v.Null(i):
				case v.Codes != nil:
					got = v.Text(i)
				default:
					got = v.Ints[i]
				}
				if got != want[c] {
					t.Fatalf("%s, row %d, column %d: %v, want %v", name, row, c, got, want[c])
				}
			}
			row++
		}
	}
	if row != 30000 {
		t.Errorf("%s: %d rows", name, row)
	}
}

// FuzzReader reads damaged files, whole columns and as a scan: an error, or values, and never a panic. Row groups
// that a few bytes say to be huge are left out here: what they take is bounded, but a fuzzer would wait for it.
func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	out, err := NewParquet(&b, Schema{Columns: []Column{{Name: "i", Kind: Int32, Null: true}, {Name: "t", Kind: Text},
		{Name: "y", Kind: Bool}, {Name: "l", Kind: Int64, Encoding: Delta}}})
	if err != nil {
		f.Fatal(err)
	}
	batch := NewBatch(out.schema)
	for i := range 20 {
		if i%3 != 0 {
			batch.Int(0, int64(i))
		}
		batch.Text(1, "text")
		batch.Bool(2, i%2 == 0)
		batch.Int(3, int64(i*i))
		if err := batch.EndRow(); err != nil {
			f.Fatal(err)
		}
	}
	if err := errors.Join(out.Write(batch), out.AddMetadata("key", "value"), out.Close()); err != nil {
		f.Fatal(err)
	}
	for at := range b.Len() {
		damaged := bytes.Clone(b.Bytes())
		damaged[at] ^= 1 << (at % 8)
		f.Add(damaged)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := NewReader(bytes.NewReader(text))
		if err != nil {
			return
		}
		if r.Rows() > 1<<20 {
			return
		}
		for group := range min(r.Groups(), 4) {
			for _, name := range []string{"i", "t", "y", "l"} {
				r.Bounds(group, name)
				if v, err := r.Column(group, name); err == nil && len(v.Valid) != max(len(v.Ints), len(v.Texts)) {
					t.Errorf("%d values, %d ints, %d texts", len(v.Valid), len(v.Ints), len(v.Texts))
				}
			}
		}
		scan, err := NewScan([]*Reader{r}, []string{"i", "t", "y", "l"}, ScanOptions{})
		if err != nil {
			return
		}
		defer scan.Close()
		for range 20 {
			rows, err := scan.Next()
			if err != nil {
				return
			}
			for _, v := range rows.Columns {
				if v.Len() != rows.N {
					t.Errorf("%d rows of %d", v.Len(), rows.N)
				}
				for i := range v.Codes {
					v.Text(i)
				}
			}
		}
	})
}
