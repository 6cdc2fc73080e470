package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Table is a table of a folder: one file, or its parts in the order of their numbers, which is that of the rows.
type Table struct {
	Files []*Reader
	// Cut tells that the table was not completed, because the program was killed or its disk was full: rows at its end are missing.
	Cut  bool
	open []*os.File
}

// Open opens NAME.parquet of a folder, or its parts NAME.000.parquet, NAME.001.parquet …. A table that is not there is fs.ErrNotExist; a part
// that is missing between others is ErrTable.
func Open(folder, name string) (*Table, error) {
	paths, err := Paths(folder, name)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for i, path := range paths {
		if err := t.add(path); err != nil {
			t.Close()
			return nil, err
		}
		next, more := t.Files[i].Metadata(NextPartKey)
		last := i == len(paths)-1
		if more && !last && next != filepath.Base(paths[i+1]) {
			t.Close()
			return nil, fmt.Errorf("%w: %s is missing beside %s: copy all parts of the table", ErrTable, next, path)
		}
		t.Cut = t.Cut || last && more
	}
	return t, nil
}

// add opens a file.
func (t *Table) add(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	t.open = append(t.open, f)
	r, err := NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.Files = append(t.Files, r)
	return nil
}

// Paths are the files that a table of a folder consists of, in order.
func Paths(folder, name string) ([]string, error) {
	name = strings.TrimSuffix(name, parquetSuffix)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	whole := false
	var numbers []int
	for _, e := range entries {
		if n, ok := partNumber(name, e.Name()); ok {
			numbers = append(numbers, n)
		}
		whole = whole || e.Name() == name+parquetSuffix
	}
	slices.Sort(numbers)
	switch {
	case whole && len(numbers) > 0:
		return nil, fmt.Errorf("%w: in %s there is %s beside parts of it: they are of two tables, move one away", ErrTable, folder, name+parquetSuffix)
	case whole:
		return []string{filepath.Join(folder, name+parquetSuffix)}, nil
	case len(numbers) == 0:
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, name+parquetSuffix), fs.ErrNotExist)
	}
	var paths []string
	for i, n := range numbers {
		if n != i {
			return nil, fmt.Errorf("%w: %s is missing in %s: copy all parts of the table", ErrTable, partName(name, i), folder)
		}
		paths = append(paths, filepath.Join(folder, partName(name, n)))
	}
	return paths, nil
}

// Rows is the number of rows of all files.
func (t *Table) Rows() (n int64) {
	for _, f := range t.Files {
		n += f.Rows()
	}
	return n
}

// Metadata is a text about the table as a whole: the last file's, or that of the last one that has the key.
func (t *Table) Metadata(key string) (string, bool) {
	for i := len(t.Files) - 1; i >= 0; i-- {
		if v, ok := t.Files[i].Metadata(key); ok {
			return v, true
		}
	}
	return "", false
}

// Scan reads columns of all files, in order.
func (t *Table) Scan(columns []string, o ScanOptions) (*Scan, error) {
	return NewScan(t.Files, columns, o)
}

// Close closes the files. Scans are closed before.
func (t *Table) Close() error {
	var all error
	for _, f := range t.open {
		all = errors.Join(all, f.Close())
	}
	t.open = nil
	return all
}
