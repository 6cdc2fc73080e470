package memory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// sideTable is a small table beside that of accesses, and the row that is read of it.
type sideTable struct {
	columns map[string]*table.Vector
	row     int
}

// eachRow calls f for every row of a table of a run. The columns of its form must be there, others may be. It is
// false where there is no such table.
func eachRow(dir string, form table.Form, others []string, most int64, f func(*sideTable) error) (ok bool, err error) {
	file, err := rundir.OpenFile(filepath.Join(dir, form.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	r, err := table.NewReader(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w", file.Name(), err)
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
	scan, err := table.NewScan([]*table.Reader{r}, names, table.ScanOptions{Ahead: 1})
	if err != nil {
		return false, err
	}
	defer scan.Close()
	s := &sideTable{columns: map[string]*table.Vector{}}
	for {
		rows, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		for i, name := range names {
			s.columns[name] = rows.Columns[i]
		}
		for s.row = range rows.N {
			if err := f(s); err != nil {
				return false, fmt.Errorf("%s: %w", file.Name(), err)
			}
		}
	}
}

// value is an integer of the row; false where there is none.
func (s *sideTable) value(name string) (int64, bool) {
	v := s.columns[name]
	if v == nil || v.Null(s.row) || len(v.Ints) == 0 {
		return 0, false
	}
	return v.Ints[s.row], true
}

// number is an integer of the row, 0 where there is none.
func (s *sideTable) number(name string) int64 {
	v, _ := s.value(name)
	return v
}

// text is a text of the row, "" where there is none.
func (s *sideTable) text(name string) string {
	v := s.columns[name]
	if v == nil || len(v.Codes) == 0 {
		return ""
	}
	return v.Text(s.row)
}
