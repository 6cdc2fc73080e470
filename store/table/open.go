package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// maxParts is how high the number of a part may be: in a run that rotates it grows as long as that is recorded.
const maxParts = 1 << 24

// Table is a table of a folder: one file, or its parts in the order of their numbers.
type Table struct {
	Files []*Reader
	// First is the number of the first part that is there. Those before it were given back, in a run that rotates, or
	// are missing.
	First int
	// Missing are the names of parts that are not there, though earlier and later ones are: at most 65,536 of them.
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
	t := &Table{First: files[0].number}
	next := t.First
	for _, p := range files {
		for ; next < p.number && len(t.Missing) < maxMissing; next++ {
			t.Missing = append(t.Missing, partName(strings.TrimSuffix(name, parquetSuffix), next))
		}
		next = p.number + 1
		err := t.add(filepath.Join(folder, p.file))
		if errors.Is(err, fs.ErrNotExist) && len(t.Files) == 0 && p != files[len(files)-1] {
			t.First, t.Missing = next, nil // a live run has just given it back
			continue
		}
		if err != nil {
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

// maxMissing bounds how many missing parts are named.
const maxMissing = 1 << 16

// part is the file of a part.
type part struct {
	number int
	file   string
}

// parts are a table's parts in a folder, by number.
func parts(folder, name string) (files []part, err error) {
	name = strings.TrimSuffix(name, parquetSuffix)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	whole := false
	for _, e := range entries {
		if n, ok := partNumber(name, e.Name()); ok {
			files = append(files, part{n, e.Name()})
		}
		whole = whole || e.Name() == name+parquetSuffix
	}
	slices.SortFunc(files, func(a, b part) int { return a.number - b.number })
	switch {
	case whole && len(files) > 0 && files[0].number == 0:
		return nil, fmt.Errorf("%w: in %s there are %s and %s: they are of two tables, move one away", ErrTable, folder,
			name+parquetSuffix, files[0].file)
	case whole:
		files = slices.Insert(files, 0, part{0, name + parquetSuffix})
	case len(files) == 0:
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, name+parquetSuffix), fs.ErrNotExist)
	}
	return files, nil
}

// Paths are the files of a folder that a table consists of, in order.
func Paths(folder, name string) (paths []string, err error) {
	files, err := parts(folder, name)
	for _, p := range files {
		paths = append(paths, filepath.Join(folder, p.file))
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
