package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// model is what a table has to hold: by column, by row; nil is null. Integers are int64 (Uint64: uint64), truths
// bool, texts string.
type model struct {
	schema Schema
	rows   [][]any
}

// modelSchema has each kind in each encoding, with nulls and without.
func modelSchema() (s Schema) {
	for _, kind := range []Kind{Int32, Int64, Uint32, Uint64, Text, Bool} {
		for encoding := range Plain + 1 {
			for _, null := range []bool{false, true} {
				if kind == Bool && encoding > 0 {
					continue
				}
				name := fmt.Sprintf("c%d_%d_%t", kind, encoding, null)
				s.Columns = append(s.Columns, Column{Name: name, Kind: kind, Null: null, Encoding: encoding})
			}
		}
	}
	s.Metadata = [][2]string{{"about", "größe"}}
	return s
}

// value is what a column gives back of an integer that was put in.
func value(kind Kind, v int64) any {
	switch kind {
	case Int32:
		return int64(int32(v))
	case Uint32:
		return int64(uint32(v))
	case Uint64:
		return uint64(v)
	case Bool:
		return v != 0
	}
	return v
}

// number makes integers of a column of one character: few values, growing ones, any.
func number(r *rand.Rand, kind Kind, character int, row int) int64 {
	if kind == Bool {
		return int64(r.IntN(2))
	}
	switch character % 4 {
	case 0:
		return int64(r.IntN(5)) - 2
	case 1:
		return 1<<40 + int64(row)*3 + int64(r.IntN(2))
	case 2:
		return int64(r.Uint64())
	}
	return []int64{math.MinInt64, math.MaxInt64, math.MinInt32, math.MaxInt32, 0}[r.IntN(5)]
}

// word is a text.
func word(r *rand.Rand, character int, row int) string {
	if character%2 == 0 {
		return []string{"", "größe", "weight", "kv_cache"}[r.IntN(4)]
	}
	return fmt.Sprintf("%d of %x", row, r.Uint64()>>r.IntN(64))
}

// grow appends some rows to a batch, column by column, in one of the ways that there are.
func (m *model) grow(t *testing.T, r *rand.Rand, b *Batch, n int) {
	t.Helper()
	from := len(m.rows)
	for range n {
		m.rows = append(m.rows, make([]any, len(m.schema.Columns)))
	}
	for c, column := range m.schema.Columns {
		if column.Null && r.IntN(6) == 0 {
			if r.IntN(2) == 0 {
				b.Extend(c, make([]int64, n), make([]bool, n))
			}
			continue
		}
		m.column(r, b, c, from, n)
	}
	if err := b.EndRows(n); err != nil {
		t.Fatal(err)
	}
}

// column appends n rows of a column.
func (m *model) column(r *rand.Rand, b *Batch, c, from, n int) {
	column := m.schema.Columns[c]
	way := r.IntN(3)
	var all []int64
	var valid []bool
	last, lastWord := number(r, column.Kind, c, from), word(r, c, from)
	for row := from; row < from+n; row++ {
		if way > 0 && r.IntN(3) > 0 {
			last, lastWord = number(r, column.Kind, c, row), word(r, c, row)
		}
		is := !column.Null || way != 2 || r.IntN(3) > 0
		v := last
		if column.Kind == Text {
			if m.rows[row][c] = lastWord; way > 0 {
				v = b.Code(c, lastWord)
			}
		} else {
			m.rows[row][c] = value(column.Kind, last)
		}
		if !is {
			m.rows[row][c] = nil
		}
		all, valid = append(all, v), append(valid, is)
	}
	switch {
	case way == 2 && column.Null:
		b.Extend(c, all, valid)
	case way > 0:
		b.Extend(c, all, nil)
	case column.Kind == Text:
		b.Fill(c, b.Code(c, lastWord), n)
	default:
		b.Fill(c, last, n)
	}
}

// write makes a table of random rows.
func (m *model) write(t *testing.T, seed uint64, o Options) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	var to bytes.Buffer
	out, err := NewParquetOptions(&to, m.schema, o)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(m.schema)
	for range 12 {
		for range r.IntN(4) {
			m.grow(t, r, b, 1+r.IntN(1<<r.IntN(11)))
		}
		if r.IntN(3) == 0 {
			err = out.Write(b)
		} else {
			err = out.Append(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	if err := errors.Join(out.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(to.Len()) != out.Size() {
		t.Errorf("%d bytes were written, it says %d", to.Len(), out.Size())
	}
	return to.Bytes()
}

var modelOptions = []Options{{}, {GroupRows: 700, PageBytes: 300}, {GroupBytes: 1 << 16, PageBytes: 5000}}

// TestEveryKind writes every kind in every encoding, in pages and row groups of any size, and reads it with Column and
// with a scan.
func TestEveryKind(t *testing.T) {
	for _, seed := range testenv.Brief([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8}, len(modelOptions)) {
		m := &model{schema: modelSchema()}
		text := m.write(t, seed, modelOptions[seed%3])
		r, err := NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if about, _ := r.Metadata("about"); r.Rows() != int64(len(m.rows)) || about != "größe" {
			t.Fatalf("%d rows, want %d; about %q", r.Rows(), len(m.rows), about)
		}
		m.readColumns(t, r)
		m.scan(t, r)
		m.bounds(t, r)
	}
}

func (m *model) readColumns(t *testing.T, r *Reader) {
	t.Helper()
	for c, column := range m.schema.Columns {
		row := 0
		for group := range r.Groups() {
			v, err := r.Column(group, column.Name)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(v.Valid)) != r.GroupRows(group) || len(v.Ints)+len(v.Texts) != len(v.Valid) {
				t.Fatalf("%s: %d of %d rows in group %d", column.Name, len(v.Valid), r.GroupRows(group), group)
			}
			for i, valid := range v.Valid {
				var got any
				switch {
				case !valid && column.Kind == Text && v.Texts[i] != "" || !valid && column.Kind != Text &&
					v.Ints[i] != 0:
					t.Fatalf("%s, row %d: something stands where nothing is", column.Name, row)
				case !valid:
				case column.Kind == Text:
					got = v.Texts[i]
				case column.Kind == Uint32:
					got = v.Ints[i]
				default:
					got = value(column.Kind, v.Ints[i])
				}
				if got != m.rows[row][c] {
					t.Fatalf("%s, row %d: %v, want %v", column.Name, row, got, m.rows[row][c])
				}
				row++
			}
		}
	}
}

// scan reads all columns with a scan of three times the file.
func (m *model) scan(t *testing.T, r *Reader) {
	t.Helper()
	var names []string
	for _, c := range m.schema.Columns {
		names = append(names, c.Name)
	}
	s, err := NewScan([]*Reader{r, r, r}, names, ScanOptions{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	row := 0
	for {
		rows, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for c, v := range rows.Columns {
			for i := range rows.N {
				want := m.rows[(row+i)%len(m.rows)][c]
				var got any
				switch {
				case v.Null(i):
				case v.Codes != nil:
					got = v.Text(i)
				default:
					got = value(m.schema.Columns[c].Kind, v.Ints[i])
				}
				if got != want || rows.File != (row+i)/len(m.rows) {
					t.Fatalf("%s, row %d of file %d: %v, want %v", names[c], row+i, rows.File, got, want)
				}
			}
		}
		row += rows.N
	}
	if row != 3*len(m.rows) {
		t.Errorf("%d rows of %d", row, 3*len(m.rows))
	}
}

// bounds compares the least and greatest integers that the file states with the actual ones.
func (m *model) bounds(t *testing.T, r *Reader) {
	t.Helper()
	for c, column := range m.schema.Columns {
		row := 0
		for group := range r.Groups() {
			low, high, ok := r.Bounds(group, column.Name)
			some := false
			for range r.GroupRows(group) {
				switch v := m.rows[row][c].(type) {
				case int64:
					some = true
					if v < low || v > high {
						t.Fatalf("%s: %d is not from %d to %d", column.Name, v, low, high)
					}
				case uint64:
					some = true
					if v < uint64(low) || v > uint64(high) {
						t.Fatalf("%s: %d is not from %d to %d", column.Name, v, uint64(low), uint64(high))
					}
				}
				row++
			}
			if ok != some {
				t.Errorf("%s: bounds are stored: %t, there are values: %t", column.Name, ok, some)
			}
		}
	}
}

const compareModel = `
import sys, json, pyarrow.parquet as pq, duckdb
for base in sys.argv[1:]:
    name = base + '.parquet'
    want = [json.loads(line) for line in open(base + '.jsonl')]
    f = pq.ParquetFile(name, page_checksum_verification=True)
    t = f.read()
    assert t.num_rows == len(want), t.num_rows
    names = t.schema.names
    for c, n in enumerate(names):
        got = t.column(c).to_pylist()
        for i, v in enumerate(got):
            assert v == want[i][c], (n, i, v, want[i][c])
    rows = duckdb.sql(f"select * from read_parquet('{name}')").fetchall()
    assert len(rows) == len(want)
    for i, r in enumerate(rows):
        assert list(r) == want[i], (i, r, want[i])
    for c, n in enumerate(names): # what DuckDB finds with row groups passed by, and what is there
        there = sorted(w[c] for w in want if w[c] is not None)
        if not there or isinstance(there[0], bool):
            continue
        v = there[len(there) // 2]
        got = duckdb.execute(f'select count(*) from read_parquet(\'{name}\') where "{n}" = ?', [v]).fetchone()[0]
        assert got == there.count(v), (n, v, got)
        low, high = there[0], there[-1]
        of = [f.metadata.row_group(g).column(c).statistics for g in range(f.num_row_groups)]
        assert all(s is not None for s in of), n
        if all(s.has_min_max for s in of if s.num_values):
            bounds = [s for s in of if s.has_min_max]
            assert min(s.min for s in bounds) == low and max(s.max for s in bounds) == high, (n, low, high)
        assert sum(s.null_count for s in of) == sum(w[c] is None for w in want), n
`

// TestPythonReadsEveryKind compares every value, and the statistics, with what pyarrow and DuckDB read.
func TestPythonReadsEveryKind(t *testing.T) {
	testenv.Once(t, "TestEveryKind")
	python := testenv.NeedPython(t, "pyarrow.parquet", "duckdb")
	dir := t.TempDir()
	args := []string{"-c", compareModel}
	for i, o := range modelOptions {
		m := &model{schema: modelSchema()}
		text := m.write(t, uint64(20+i), o)
		name := filepath.Join(dir, fmt.Sprint(i))
		var lines bytes.Buffer
		for _, row := range m.rows {
			line, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(line, '\n'))
		}
		if err := errors.Join(os.WriteFile(name+".parquet", text, 0o600),
			os.WriteFile(name+".jsonl", lines.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
