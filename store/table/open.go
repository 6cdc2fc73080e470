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
)

// PartName is the name of a part of a table that is written in parts, such as trace.parquet, trace.001.parquet, trace.002.parquet.
func PartName(name string, number int) string {
	if number == 0 {
		return strings.TrimSuffix(name, parquetSuffix) + parquetSuffix
	}
	return fmt.Sprintf("%s.%03d%s", strings.TrimSuffix(name, parquetSuffix), number, parquetSuffix)
}

const parquetSuffix = ".parquet"

// partNumber is the number of a part by its file's name; false: it is none of the table.
func partNumber(name, file string) (int, bool) {
	if file == PartName(name, 0) {
		return 0, true
	}
	middle, ok := strings.CutPrefix(file, strings.TrimSuffix(name, parquetSuffix)+".")
	middle, isParquet := strings.CutSuffix(middle, parquetSuffix)
	n, err := strconv.Atoi(middle)
	return n, ok && isParquet && err == nil && n > 0 && PartName(name, n) == file
}

// Table is a table of a folder: one file, or its parts in the order of their numbers.
type Table struct {
	Files []*Reader
	// Missing are the names of parts that are not there, though later ones are.
	Missing []string
	open    []*os.File
}

// Open opens a table of a folder, such as trace.parquet with the parts behind it. A table that is not there is fs.ErrNotExist.
func Open(folder, name string) (*Table, error) {
	numbers, err := parts(folder, name)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for number := range numbers[len(numbers)-1] + 1 {
		if !slices.Contains(numbers, number) {
			t.Missing = append(t.Missing, PartName(name, number))
			continue
		}
		if err := t.add(filepath.Join(folder, PartName(name, number))); err != nil {
			t.Close()
			return nil, err
		}
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

// maxParts is how high the number of a part may be.
const maxParts = 1 << 16

// parts are the numbers of the parts of a table that are in a folder, sorted.
func parts(folder, name string) (numbers []int, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if n, ok := partNumber(name, e.Name()); ok && n < maxParts {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, PartName(name, 0)), fs.ErrNotExist)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Paths are the files of a folder that a table consists of, in order.
func Paths(folder, name string) ([]string, error) {
	numbers, err := parts(folder, name)
	var paths []string
	for _, n := range numbers {
		paths = append(paths, filepath.Join(folder, PartName(name, n)))
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
