package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// partName is the name of a part of a table that is written in parts, such as trace.000.parquet.
func partName(name string, number int) string {
	return fmt.Sprintf("%s.%03d%s", name, number, parquetSuffix)
}

const parquetSuffix = ".parquet"

// partNumber is the number of a part by its file's name; false: it is none of the table.
func partNumber(name, file string) (int, bool) {
	middle, ok := strings.CutPrefix(file, name+".")
	middle, isParquet := strings.CutSuffix(middle, parquetSuffix)
	n, err := strconv.Atoi(middle)
	return n, ok && isParquet && err == nil && n >= 0 && n < maxParts && partName(name, n) == file
}

// maxParts is how high the number of a part may be.
const maxParts = 1 << 16

// Table is a table of a folder: one file, or its parts in the order of their numbers.
type Table struct {
	Files []*Reader
	// Missing are the names of parts that are not there, though later ones are.
	Missing []string
	// Cut reports that the table was not completed, because the program was killed or its disk was full: rows at its
	// end are missing.
	Cut  bool
	open []*os.File
}

// Open opens NAME.parquet of a folder, or its parts NAME.000.parquet, NAME.001.parquet … of which the first may
// have the plain name. A table that is not there is fs.ErrNotExist.
func Open(folder, name string) (*Table, error) {
	files, err := parts(folder, name)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for number, file := range files {
		if file == "" {
			t.Missing = append(t.Missing, partName(strings.TrimSuffix(name, parquetSuffix), number))
			continue
		}
		if err := t.add(filepath.Join(folder, file)); err != nil {
			t.Close()
			return nil, err
		}
	}
	_, t.Cut = t.Files[len(t.Files)-1].Metadata(nextPartKey)
	return t, nil
}

// add opens a file.
func (t *Table) add(path string) error {
	f, err := rundir.OpenFile(path)
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

// parts are the names of a table's parts in a folder, by number; "" where one is missing.
func parts(folder, name string) (files []string, err error) {
	name = strings.TrimSuffix(name, parquetSuffix)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	put := func(number int, file string) {
		for len(files) <= number {
			files = append(files, "")
		}
		files[number] = file
	}
	whole := false
	for _, e := range entries {
		if n, ok := partNumber(name, e.Name()); ok {
			put(n, e.Name())
		}
		whole = whole || e.Name() == name+parquetSuffix
	}
	switch {
	case whole && len(files) > 0 && files[0] != "":
		return nil, fmt.Errorf("%w: in %s there are %s and %s: they are of two tables, move one away", ErrTable, folder,
			name+parquetSuffix, files[0])
	case whole:
		put(0, name+parquetSuffix)
	case len(files) == 0:
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, name+parquetSuffix), fs.ErrNotExist)
	}
	return files, nil
}

// Paths are the files of a folder that a table consists of, in order.
func Paths(folder, name string) (paths []string, err error) {
	files, err := parts(folder, name)
	for _, file := range files {
		if file != "" {
			paths = append(paths, filepath.Join(folder, file))
		}
	}
	return paths, err
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
