package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/llamatap/llamatap/store/rundir"
)

// Row is a row that EachRow reads.
type Row struct {
	columns map[string]*Vector
	number  int // in them
}

// EachRow calls f for every row of a small table of a run, of most rows at most. The columns of its form must be there,
// others may be. It is false where there is no such table. The row is valid during the call.
func EachRow(ctx context.Context, dir string, form Form, others []string, most int64, f func(*Row) error) (
	ok bool, err error,
) {
	file, err := rundir.OpenFile(filepath.Join(dir, form.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	r, err := NewReader(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w; it is damaged or no table: llamatap verify %s", file.Name(), err, dir)
	}
	if err := r.Check(form); err != nil {
		return false, err
	}
	if r.Rows() > most {
		return false, fmt.Errorf("%s: it has %d rows, at most %d can be analysed: move it away to do without it",
			file.Name(), r.Rows(), most)
	}
	var names []string
	for _, c := range form.Columns {
		names = append(names, c.Name)
	}
	for _, name := range others {
		if r.Has(name) {
			names = append(names, name)
		}
	}
	return true, r.EachRow(ctx, names, f)
}

// EachRow calls f for every row, with the columns of these names. The row is valid during the call.
func (t *Reader) EachRow(ctx context.Context, names []string, f func(*Row) error) error {
	scan, err := NewScan([]*Reader{t}, names, ScanOptions{Ahead: 1})
	if err != nil {
		return err
	}
	defer scan.Close()
	row := &Row{columns: map[string]*Vector{}}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, name := range names {
			row.columns[name] = rows.Columns[i]
		}
		for row.number = range rows.N {
			if err := f(row); err != nil {
				return named(t, err)
			}
		}
	}
}

// Value is an integer or truth of the row; false where there is none.
func (r *Row) Value(name string) (int64, bool) {
	v := r.columns[name]
	if v == nil || v.Null(r.number) || len(v.Ints) == 0 {
		return 0, false
	}
	return v.Ints[r.number], true
}

// Int is Value with 0 where there is none.
func (r *Row) Int(name string) int64 {
	v, _ := r.Value(name)
	return v
}

// Text is a text of the row, "" where there is none.
func (r *Row) Text(name string) string {
	v := r.columns[name]
	if v == nil || len(v.Codes) == 0 {
		return ""
	}
	return v.Text(r.number)
}
