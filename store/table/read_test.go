package table

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
			is := []any{columns["i"].Ints[k], columns["l"].Ints[k], columns["u"].Ints[k], columns["b"].Ints[k], columns["t"].Texts[k], columns["y"].Ints[k]}
			want := []any{int64(-row), int64(row) << 40, int64(math.MaxUint32 - row), -int64(row), string([]rune("größe")[:row%5]), int64(row % 2)}
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

// TestReadOthers reads what pyarrow writes: with snappy, in other pages, with a column of floats that is not known.
func TestReadOthers(t *testing.T) {
	python := testenv.NeedPython(t, "pyarrow.parquet")
	name := filepath.Join(t.TempDir(), "x.parquet")
	const script = `
import sys, pyarrow as pa, pyarrow.parquet as pq
n = 50000
pq.write_table(pa.table({"a": pa.array([None if i % 7 == 0 else i * 3 for i in range(n)], pa.int64()), "t": pa.array([str(i % 11) for i in range(n)]),
    "x": pa.array([i / 2 for i in range(n)])}), sys.argv[1], row_group_size=20000, data_page_size=4096)
`
	if out, err := exec.Command(python, "-c", script, name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for group := range r.Groups() {
		a, errA := r.Column(group, "a")
		b, errB := r.Column(group, "t")
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		for k := range a.Ints {
			if a.Valid[k] != (row%7 != 0) || a.Valid[k] && a.Ints[k] != int64(row*3) || b.Texts[k] != []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}[row%11] {
				t.Fatalf("row %d: %d, %q", row, a.Ints[k], b.Texts[k])
			}
			row++
		}
	}
	if _, err := r.Column(0, "x"); row != 50000 || !errors.Is(err, ErrTable) {
		t.Errorf("%d rows; floats: %v", row, err)
	}
}

// FuzzReader reads damaged files, whole columns and as a scan: an error, or values, and never a panic. Row groups that a few bytes say to be
// huge are left out here: what they take is bounded, but a fuzzer would wait for it.
func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	out, err := NewParquet(&b, Schema{Columns: []Column{{Name: "i", Kind: Int32, Null: true}, {Name: "t", Kind: Text}, {Name: "y", Kind: Bool}, {Name: "l", Kind: Int64, Encoding: Delta}}})
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
