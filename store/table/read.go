package table

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// ErrTable occurs when a file is no Parquet file, or none that this package can read.
var ErrTable = errors.New("not a table that can be read")

// Reader reads a Parquet file whose columns have no lists, one row group at a time. It takes columns by name, so that files with more or
// other columns can be read as far as they are known.
type Reader struct {
	in    *file.Reader
	names map[string]int
}

// Source is what a table is read from, such as a file.
type Source interface {
	io.ReaderAt
	io.Seeker
}

// NewReader begins to read a file, which must stay open. Damage is an error, as far as it is noticed, never a panic.
func NewReader(r Source) (_ *Reader, err error) {
	defer caught(&err)
	in, err := file.NewParquetReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTable, err)
	}
	t := &Reader{in: in, names: map[string]int{}}
	columns := in.MetaData().Schema
	for i := range columns.NumColumns() {
		if c := columns.Column(i); c.MaxRepetitionLevel() == 0 && c.MaxDefinitionLevel() <= 1 {
			t.names[c.Name()] = i
		}
	}
	return t, nil
}

// caught makes a panic of the library, which damaged files cause, an error.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrTable, p)
	}
}

// Metadata returns a text about the table as a whole; false where the file has none of that key.
func (t *Reader) Metadata(key string) (value string, ok bool) {
	found := t.in.MetaData().KeyValueMetadata().FindValue(key)
	if found == nil {
		return "", false
	}
	return *found, true
}

// Rows is the number of rows of the file.
func (t *Reader) Rows() int64 { return t.in.NumRows() }

// Groups is the number of row groups.
func (t *Reader) Groups() int { return t.in.NumRowGroups() }

// Values are those of one column in one row group: Ints, of integers and truths, or Texts, one per row. What is null is not Valid.
type Values struct {
	Ints  []int64
	Texts []string
	Valid []bool
}

// Column reads a column of a row group. A column that the file does not have is ErrTable.
func (t *Reader) Column(group int, name string) (v Values, err error) {
	defer caught(&err)
	at, ok := t.names[name]
	if !ok {
		return v, fmt.Errorf("%w: no column %s", ErrTable, name)
	}
	rows := t.in.RowGroup(group)
	chunk, err := rows.Column(at)
	if err != nil {
		return v, fmt.Errorf("%w: column %s: %w", ErrTable, name, err)
	}
	column := t.in.MetaData().Schema.Column(at)
	n := rows.NumRows()
	if n < 0 || n > t.in.NumRows() {
		return v, fmt.Errorf("%w: a row group of %d rows", ErrTable, n)
	}
	if err = v.read(chunk, column, int(n)); err != nil {
		return v, fmt.Errorf("%w: column %s: %w", ErrTable, name, err)
	}
	return v, nil
}

// read reads n rows of a column.
func (v *Values) read(chunk file.ColumnChunkReader, column *schema.Column, n int) error {
	switch from := chunk.(type) {
	case *file.Int32ColumnChunkReader:
		return gather(v, from.ReadBatch, column, n, func(x int32) {
			if logical, ok := column.LogicalType().(schema.IntLogicalType); ok && !logical.IsSigned() {
				v.Ints = append(v.Ints, int64(uint32(x)))
				return
			}
			v.Ints = append(v.Ints, int64(x))
		}, func() { v.Ints = append(v.Ints, 0) })
	case *file.Int64ColumnChunkReader:
		return gather(v, from.ReadBatch, column, n, func(x int64) { v.Ints = append(v.Ints, x) }, func() { v.Ints = append(v.Ints, 0) })
	case *file.BooleanColumnChunkReader:
		return gather(v, from.ReadBatch, column, n, func(x bool) {
			if x {
				v.Ints = append(v.Ints, 1)
			} else {
				v.Ints = append(v.Ints, 0)
			}
		}, func() { v.Ints = append(v.Ints, 0) })
	case *file.ByteArrayColumnChunkReader:
		return gather(v, from.ReadBatch, column, n, func(x parquet.ByteArray) { v.Texts = append(v.Texts, string(x)) }, func() { v.Texts = append(v.Texts, "") })
	}
	return fmt.Errorf("its type %s is not known here", chunk.Type())
}

// gather reads n rows batch by batch, and calls add for each value and null for each that is missing.
func gather[T any](v *Values, read func(int64, []T, []int16, []int16) (int64, int, error), column *schema.Column, n int, add func(T), null func()) error {
	const most = 1 << 14
	size := min(n, most)
	values, levels := make([]T, size), make([]int16, size)
	for done := 0; done < n; {
		rows, _, err := read(int64(min(size, n-done)), values, levels, nil)
		if err != nil {
			return err
		}
		if rows == 0 {
			return io.ErrUnexpectedEOF
		}
		next := 0
		for _, level := range levels[:rows] {
			if level < column.MaxDefinitionLevel() {
				v.Valid = append(v.Valid, false)
				null()
				continue
			}
			v.Valid = append(v.Valid, true)
			add(values[next])
			next++
		}
		done += int(rows)
	}
	return nil
}
