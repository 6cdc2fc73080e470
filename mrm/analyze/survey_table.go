package analyze

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// rowGroup is the columns of a row group. One that a file does not have is all null.
type rowGroup struct {
	columns map[string]table.Values
	rows    int
}

// integer is a value of a column of integers or truths; false: null.
func (g *rowGroup) integer(name string, i int) (int64, bool) {
	c := g.columns[name]
	if i >= len(c.Ints) || !c.Valid[i] {
		return 0, false
	}
	return c.Ints[i], true
}

// number is such a value; null is 0.
func (g *rowGroup) number(name string, i int) int64 {
	v, _ := g.integer(name, i)
	return v
}

// text is a text; null is "".
func (g *rowGroup) text(name string, i int) string {
	c := g.columns[name]
	if i >= len(c.Texts) {
		return ""
	}
	return c.Texts[i]
}

// each reads columns of a table, row group by row group. A table that is not there is no error: found is false.
func each(ctx context.Context, path string, required, optional []string, f func(*rowGroup) error) (
	found bool, err error,
) {
	file, err := rundir.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read table: %w", err)
	}
	defer file.Close()
	r, err := table.NewReader(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w; it is damaged or no table: llamatap verify %s", path, err, filepath.Dir(path))
	}
	if err := r.Check(table.Form{Name: filepath.Base(path)}); err != nil {
		return false, err
	}
	for number := range r.Groups() {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		g := &rowGroup{columns: map[string]table.Values{}, rows: -1}
		for _, name := range append(append([]string{}, required...), optional...) {
			v, err := r.Column(number, name)
			if err != nil {
				if slices.Contains(optional, name) && strings.Contains(err.Error(), "no column") {
					continue
				}
				return false, fmt.Errorf("%s: %w; it is damaged or of another kind: llamatap verify %s", path, err,
					filepath.Dir(path))
			}
			g.columns[name] = v
			g.rows = len(v.Valid)
		}
		if err := f(g); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
	}
	return true, nil
}
