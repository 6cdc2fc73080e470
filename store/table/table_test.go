package table

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

var schemaOfTest = Schema{
	Columns: []Column{{Name: "i", Kind: Int32, Null: true}, {Name: "l", Kind: Int64, Null: false},
		{Name: "u", Kind: Uint32, Null: false}, {Name: "b", Kind: Uint64, Null: true},
		{Name: "t", Kind: Text, Null: true},
		{Name: "d", Kind: Int32List, Null: false}, {Name: "f", Kind: Float32List, Null: true},
		{Name: "y", Kind: Bool, Null: true}},
	Metadata: [][2]string{{"about", `{"n":1}`}},
}

// writer is what both formats have.
type writer interface {
	Write(*Batch) error
	Close() error
}

func open(format string, w io.Writer) (writer, error) {
	if format == "arrow" {
		return NewArrow(w, schemaOfTest)
	}
	return NewParquet(w, schemaOfTest)
}

// fill fills a batch with rows first to end-1: every third has nulls, lists are of 0 to 4 elements, or of up to 32400.
func fill(t *testing.T, b *Batch, first, end int) {
	t.Helper()
	b.Reset()
	for i := first; i < end; i++ {
		if i%3 != 0 {
			b.Int(0, int64(-i))
			b.Int(3, -int64(i))
			b.Text(4, string([]rune("größe")[:i%5]))
			b.Bool(7, i%2 != 0)
		}
		b.Int(1, int64(i)<<40)
		b.Int(2, math.MaxUint32-int64(i))
		b.Ints(5, []int64{1, 2, 3, int64(i)}[:i%5])
		if i%4 != 0 {
			values := make([]float32, (i%7)*(i%7)*(i%7)*150)
			for k := range values {
				values[k] = float32(i) + float32(k)/1024
			}
			b.Floats(6, values)
		}
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, format string, w io.Writer) {
	t.Helper()
	out, err := open(format, w)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(schemaOfTest)
	for _, r := range [][2]int{{0, 5}, {5, 5}, {5, 40}} {
		fill(t, b, r[0], r[1])
		if b.Rows() != r[1]-r[0] || b.Rows() > 0 && b.Bytes() < int64(b.Rows())*20 {
			t.Errorf("%d rows, %d bytes", b.Rows(), b.Bytes())
		}
		if err := out.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

const compare = `
import sys, pyarrow as pa, pyarrow.parquet as pq, duckdb, pandas
name, form = sys.argv[1:]
t = pq.read_table(name) if form == "parquet" else pa.ipc.open_file(pa.memory_map(name)).read_all()
assert t.schema.metadata[b"about"] == b'{"n":1}', t.schema.metadata
assert [str(f.type).replace("element", "item").replace(" not null", "") for f in t.schema] == ["int32", "int64",
    "uint32", "uint64", "string", "list<item: int32>", "list<item: float>", "bool"], t.schema
assert [f.nullable for f in t.schema] == [True, False, False, True, True, False, True, True]
n = 0
for i, r in enumerate(t.to_pylist()):
    null = i % 3 == 0
    assert r["i"] == (None if null else -i) and r["l"] == i << 40 and r["u"] == 2**32 - 1 - i, r
    assert r["b"] == (None if null else (-i) % 2**64) and r["t"] == (None if null else "größe"[:i % 5]), r
    assert r["y"] == (None if null else i % 2 != 0), r
    assert r["d"] == [1, 2, 3, i][:i % 5]
    assert r["f"] == (None if i % 4 == 0 else [i + k / 1024 for k in range((i % 7) ** 3 * 150)]), i
    n += 1
assert n == 40, n
if form == "parquet":
    f = pq.ParquetFile(name)
    assert f.num_row_groups == 2
    column = f.metadata.row_group(1).column(6)
    assert column.compression == "ZSTD" and "BYTE_STREAM_SPLIT" in column.encodings, column
    assert duckdb.sql(f"select count(*), sum(len(f)), sum(f[2]) from '{name}'").fetchall()[0][0] == 40
    assert len(pandas.read_parquet(name)) == 40
`

// TestOthersRead lets pyarrow, pandas and DuckDB read what is written, and compares every value.
func TestOthersRead(t *testing.T) {
	testenv.Once(t, "TestEveryKind")
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "duckdb")
	for _, format := range []string{"parquet", "arrow"} {
		var b bytes.Buffer
		write(t, format, &b)
		name := filepath.Join(t.TempDir(), "x."+format)
		if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(python, "-c", compare, name, format).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", format, err, out)
		}
	}
}

// TestTimesAreExact lets pyarrow, pandas and DuckDB read times, durations and addresses in columns that have nulls:
// every nanosecond is there, with its type, unit and description.
func TestTimesAreExact(t *testing.T) {
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "duckdb")
	s := Schema{Columns: []Column{
		{Name: "at_ns", Kind: Int64, Null: true, Unit: UnixNS, Description: "when it was read"},
		{Name: "for_ns", Kind: Int64, Null: true, Unit: NS},
		{Name: "addr", Kind: Uint64, Null: true}, {Name: "size", Kind: Int64, Null: false, Unit: Bytes},
	}, Metadata: [][2]string{{"about", "times"}}}
	dir := t.TempDir()
	for _, format := range []string{"parquet", "arrow"} {
		var b bytes.Buffer
		var out writer
		var err error
		if out, err = NewParquet(&b, s); format == "arrow" {
			out, err = NewArrow(&b, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		rows := NewBatch(s)
		for i := range int64(200) {
			if i%3 != 0 {
				rows.Int(0, 1700000000123456001+i)
				rows.Int(1, 1<<60+i)
				rows.Int(2, -i)
			}
			rows.Int(3, 1<<62+i)
			if err := rows.EndRow(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(out.Write(rows), out.Close(),
			os.WriteFile(filepath.Join(dir, "x."+format), b.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const script = `
import sys, duckdb, pandas, pyarrow as pa, pyarrow.parquet as pq, pyarrow.feather as feather
columns = [((None,) * 3 if i % 3 == 0 else (1700000000123456001 + i, (1 << 60) + i, (-i) % 2**64)) + ((1 << 62) + i,)
    for i in range(200)]
name = sys.argv[1] + "/x.parquet"
t = pq.read_table(name)
assert [str(f.type) for f in t.schema] == ["timestamp[ns]", "duration[ns]", "uint64", "int64"], t.schema
assert t.schema.metadata[b"about"] == b"times", t.schema.metadata
about = {b"unit": b"ns since 1970-01-01 00:00 UTC", b"description": b"when it was read"}
assert t.schema.field("at_ns").metadata == about, t.schema
assert t.schema.field("size").metadata == {b"unit": b"bytes"} and t.schema.field("for_ns").metadata[b"unit"] == b"ns"
f = feather.read_table(sys.argv[1] + "/x.arrow")
assert [str(c.type) for c in f.schema] == ["timestamp[ns, tz=UTC]", "duration[ns]", "uint64", "int64"], f.schema
for t in (t, f):
    got = list(zip(*[t[c].cast("uint64" if c == "addr" else "int64").to_pylist() for c in t.column_names]))
    assert got == columns, got[:4]
d = pandas.read_parquet(name)
assert [str(v) for v in d.dtypes] == ["datetime64[ns, UTC]", "timedelta64[ns]", "UInt64", "int64"], d.dtypes
for i, v in enumerate(columns):
    r = [d[c][i] for c in d.columns]
    same = all(pandas.isna(x) for x in r[:3]) if v[0] is None else (r[0].value, r[1].value, r[2]) == v[:3]
    assert r[3] == v[3] and same, (i, r, v)
got = duckdb.sql(f"select epoch_ns(at_ns), for_ns, addr, size from '{name}'").fetchall()
assert got == columns, got[:4]
`
	if out, err := exec.Command(python, "-c", script, dir).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSameBytes writes a table twice.
func TestSameBytes(t *testing.T) {
	for _, format := range []string{"parquet", "arrow"} {
		var a, b bytes.Buffer
		write(t, format, &a)
		write(t, format, &b)
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: %d and %d bytes differ", format, a.Len(), b.Len())
		}
	}
}

// limited fails when it has taken as many bytes as it holds.
type limited int

var errFull = errors.New("no room")

func (l *limited) Write(p []byte) (int, error) {
	if *l -= limited(len(p)); *l < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestFullDisk lets every write fail once, wherever the file was: each is reported.
func TestFullDisk(t *testing.T) {
	for _, format := range []string{"parquet", "arrow"} {
		b := NewBatch(schemaOfTest)
		fill(t, b, 0, 6)
		once := func(w io.Writer) error {
			out, err := open(format, w)
			if err != nil {
				return err
			}
			return errors.Join(out.Write(b), out.Close())
		}
		var whole bytes.Buffer
		if err := once(&whole); err != nil {
			t.Fatal(err)
		}
		for room := 0; room < whole.Len(); room += 1 + whole.Len()/60 {
			to := limited(room)
			if err := once(&to); !errors.Is(err, errFull) {
				t.Fatalf("%s: room for %d of %d bytes: %v", format, room, whole.Len(), err)
			}
		}
	}
}

func TestRowsThatAreNone(t *testing.T) {
	b := NewBatch(Schema{Columns: []Column{{Name: "a", Kind: Int32, Null: false}, {Name: "b", Kind: Text, Null: true}}})
	b.Text(1, "x")
	if err := b.EndRow(); err == nil {
		t.Error("a column that is never null has no value")
	}
	b = NewBatch(Schema{Columns: []Column{{Name: "a", Kind: Int32, Null: false}}})
	b.Int(0, 1)
	b.Int(0, 2)
	if err := b.EndRow(); err == nil {
		t.Error("a column has two values")
	}
}
