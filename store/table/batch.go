package table

import "fmt"

// Kind is the type of a column's values.
type Kind uint8

// The kinds.
const (
	Int32 Kind = iota
	Int64
	Uint32
	Uint64
	Text        // UTF-8
	Int32List   // of any length per row
	Float32List // of any length per row
	Bool
)

// Column is one column of a schema.
type Column struct {
	Name string
	Kind Kind
	Null bool // may lack a value
}

// Schema is the columns of a table, and texts about the table as a whole, which stand in the file.
type Schema struct {
	Columns  []Column
	Metadata [][2]string // key, value
}

// Batch is rows on their way into a file. Each row is one call per column, in any order, then EndRow; a column that was not called is
// null. A Batch is used again after Reset, and allocates nothing once it has grown.
type Batch struct {
	schema  Schema
	columns []values
	rows    int
	bytes   int64
}

// values are those of one column. Of ints and texts there is one per row, null or not.
type values struct {
	ints   []int64 // also the elements of an Int32List
	texts  []string
	floats []float32
	ends   []int // of a list's rows in ints or floats
	valid  []bool
}

// NewBatch makes an empty batch for tables of a schema.
func NewBatch(s Schema) *Batch { return &Batch{schema: s, columns: make([]values, len(s.Columns))} }

// Rows is the number of whole rows.
func (b *Batch) Rows() int { return b.rows }

// Bytes is about how much memory the rows take, and how much their columns will in a file before compression.
func (b *Batch) Bytes() int64 { return b.bytes }

// Reset empties the batch.
func (b *Batch) Reset() {
	for i := range b.columns {
		c := &b.columns[i]
		clear(c.texts) // for the garbage collector
		c.ints, c.texts, c.floats, c.ends, c.valid = c.ints[:0], c.texts[:0], c.floats[:0], c.ends[:0], c.valid[:0]
	}
	b.rows, b.bytes = 0, 0
}

// Int sets an integer of the row; Uint64 columns take its bits.
func (b *Batch) Int(column int, v int64) {
	c := &b.columns[column]
	c.ints, c.valid = append(c.ints, v), append(c.valid, true)
	b.bytes += 8
}

// Bool sets a truth of the row.
func (b *Batch) Bool(column int, v bool) {
	if v {
		b.Int(column, 1)
	} else {
		b.Int(column, 0)
	}
}

// Text sets a text of the row.
func (b *Batch) Text(column int, v string) {
	c := &b.columns[column]
	c.texts, c.valid = append(c.texts, v), append(c.valid, true)
	b.bytes += int64(len(v)) + 4
}

// Ints sets a list of the row, which is copied.
func (b *Batch) Ints(column int, v []int64) {
	c := &b.columns[column]
	c.ints, c.valid = append(c.ints, v...), append(c.valid, true)
	c.ends = append(c.ends, len(c.ints))
	b.bytes += 8 * int64(len(v))
}

// Floats sets a list of the row, which is copied.
func (b *Batch) Floats(column int, v []float32) {
	c := &b.columns[column]
	c.floats, c.valid = append(c.floats, v...), append(c.valid, true)
	c.ends = append(c.ends, len(c.floats))
	b.bytes += 4 * int64(len(v))
}

// EndRow ends the row: columns without a value are null. One that must have a value is an error, as is a column that was set twice.
func (b *Batch) EndRow() error {
	b.rows++
	for i := range b.columns {
		c, column := &b.columns[i], b.schema.Columns[i]
		switch {
		case len(c.valid) == b.rows:
			continue
		case len(c.valid) > b.rows:
			return fmt.Errorf("column %s has two values in row %d", column.Name, b.rows-1)
		case !column.Null:
			return fmt.Errorf("column %s has no value in row %d", column.Name, b.rows-1)
		}
		c.valid = append(c.valid, false)
		switch column.Kind {
		case Text:
			c.texts = append(c.texts, "")
		case Int32List:
			c.ends = append(c.ends, len(c.ints))
		case Float32List:
			c.ends = append(c.ends, len(c.floats))
		default:
			c.ints = append(c.ints, 0)
		}
	}
	return nil
}
