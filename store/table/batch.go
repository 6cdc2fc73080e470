package table

import (
	"fmt"
	"slices"
)

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
	Float64 // written, not read
)

var kindNames = [...]string{"int32", "int64", "uint32", "uint64", "text", "list of int32", "list of float32", "bool",
	"float64"}

// String is the kind's name for error texts.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// isList reports whether rows have any number of elements.
func (k Kind) isList() bool { return k == Int32List || k == Float32List }

func (k Kind) unsigned() bool { return k == Uint32 || k == Uint64 }

// narrow reports whether integers take four bytes.
func (k Kind) narrow() bool { return k == Int32 || k == Uint32 || k == Int32List }

// physical is the type in a Parquet file.
func (k Kind) physical() int {
	switch k {
	case Bool:
		return physicalBool
	case Text:
		return physicalBytes
	case Float32List:
		return physicalFloat
	case Float64:
		return physicalDouble
	case Int32, Uint32, Int32List:
		return physicalInt32
	}
	return physicalInt64
}

// Encoding is how a Parquet file stores a column of integers or texts. It changes no value, only speed and size.
type Encoding uint8

// The encodings.
const (
	// Auto is a dictionary as long as values repeat, and then what fits: differences for integers, plain texts.
	Auto Encoding = iota
	// Dictionary is for what repeats: each value stands once per row group, rows have its number, and a run of rows
	// costs as much as one. Behind 65536 values it continues like Auto.
	Dictionary
	// Delta is for integers that grow, or lie near their neighbours: differences in the bits that they need.
	Delta
	// Plain is for what neither fits.
	Plain
)

// Column is one column of a schema.
type Column struct {
	Name     string
	Kind     Kind
	Null     bool     // may lack a value
	Encoding Encoding // of integers and texts
	// Unit is what its numbers count, Description one sentence about it. Files carry both.
	Unit        Unit
	Description string
}

// Schema is the columns of a table, and texts about the table as a whole, which stand in the file.
type Schema struct {
	Columns  []Column
	Metadata [][2]string // key, value
}

// Batch is rows on their way into a file. A row is one call per column, in any order, then [Batch.EndRow]; a column
// that was not called is null. Many rows at once are calls of Fill and Extend, each of which may bring any number
// of rows of one column, then [Batch.EndRows]; rows that are alike in a column cost as much as one. A Batch is used
// again after Reset, and allocates nothing once it has grown.
type Batch struct {
	schema   Schema
	columns  []values
	required []int // columns that must have a value
	rows     int
	bytes    int64
	err      error // of the row, until it ends
}

// values are those of one column. Rows at its end that it lacks are null.
type values struct {
	kind   Kind
	null   bool
	rows   int
	runs   []span
	open   int     // rows of the last span, of values, which is not in runs yet
	ints   []int64 // of spans of values; of texts their codes; of an Int32List its elements
	valid  []bool  // beside ints and ends, where values may lack
	floats []float32
	ends   []int // of a list's rows in ints or floats
	words  words
}

// span is rows of a column that follow one another.
type span struct {
	n     int
	value int64 // of alike
	how   how
}

type how uint8

const (
	single how = iota // each has an element of ints, or of ends
	alike             // all have one value
	absent            // all are null
)

// NewBatch makes an empty batch for tables of a schema.
func NewBatch(s Schema) *Batch {
	b := &Batch{schema: s, columns: make([]values, len(s.Columns))}
	for i, c := range s.Columns {
		b.columns[i].kind, b.columns[i].null = c.Kind, c.Null
		if !c.Null {
			b.required = append(b.required, i)
		}
	}
	return b
}

// Rows is the number of whole rows.
func (b *Batch) Rows() int { return b.rows }

// Bytes is about how much memory the rows take, and how much their columns will in a file before compression.
func (b *Batch) Bytes() int64 { return b.bytes }

// Reset empties the batch. It keeps the texts that have codes.
func (b *Batch) Reset() {
	for i := range b.columns {
		c := &b.columns[i]
		c.rows, c.open, c.runs, c.ints, c.valid, c.floats, c.ends = 0, 0, c.runs[:0], c.ints[:0], c.valid[:0],
			c.floats[:0], c.ends[:0]
		c.words.forget()
	}
	b.rows, b.bytes, b.err = 0, 0, nil
}

// once is a column that gets its only value of the row.
func (b *Batch) once(column int) *values {
	c := &b.columns[column]
	if c.rows > b.rows && b.err == nil {
		b.err = fmt.Errorf("column %s has two values in row %d", b.schema.Columns[column].Name, b.rows)
	}
	c.catchUp(b.rows)
	return c
}

// catchUp makes rows null that the column lacks of those before.
func (c *values) catchUp(rows int) {
	if c.rows < rows {
		c.absent(rows - c.rows)
	}
}

// span appends n rows that are alike, or null.
func (c *values) span(how how, value int64, n int) {
	c.settle()
	c.rows += n
	if last := len(c.runs) - 1; last >= 0 && c.runs[last].how == how && c.runs[last].value == value {
		c.runs[last].n += n
		return
	}
	c.runs = append(c.runs, span{n, value, how})
}

// settle ends the span of values.
func (c *values) settle() {
	if c.open > 0 {
		c.runs = append(c.runs, span{n: c.open})
		c.open = 0
	}
}

// fit cuts what an integer has beyond 32 bits, in columns that have only these.
func (c *values) fit(v int64) int64 {
	if c.kind == Int32 || c.kind == Uint32 {
		return int64(int32(v))
	}
	return v
}

// append appends a row.
func (c *values) append(v int64) {
	c.rows++
	c.open++
	c.ints = append(c.ints, v)
	if c.null {
		c.valid = append(c.valid, true)
	}
}

// Int sets an integer of the row; Uint64 columns take its bits, those of 32 bits its lower
// half, and Float64 columns the bits of a number.
func (b *Batch) Int(column int, v int64) {
	c := b.once(column)
	c.append(c.fit(v))
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
	c := b.once(column)
	c.append(int64(c.words.code(v)))
	b.bytes += int64(len(v)) + 4
}

// list ends the row of a list.
func (c *values) list(end int, valid bool) {
	c.rows++
	c.open++
	c.ends, c.valid = append(c.ends, end), append(c.valid, valid)
}

// Ints sets a list of the row, which is copied.
func (b *Batch) Ints(column int, v []int64) {
	c := b.once(column)
	c.ints = append(c.ints, v...)
	c.list(len(c.ints), true)
	b.bytes += 8 * int64(len(v))
}

// Floats sets a list of the row, which is copied.
func (b *Batch) Floats(column int, v []float32) {
	c := b.once(column)
	c.floats = append(c.floats, v...)
	c.list(len(c.floats), true)
	b.bytes += 4 * int64(len(v))
}

// Fill sets an integer, or a truth as 0 or 1, of n rows.
func (b *Batch) Fill(column int, v int64, n int) {
	if n <= 0 {
		return
	}
	c := &b.columns[column]
	c.catchUp(b.rows)
	v = c.fit(v)
	b.bytes += 8
	if last := len(c.runs) - 1; n == 1 && (c.open > 0 || last < 0 || c.runs[last].how != alike ||
		c.runs[last].value != v) {
		c.append(v) // rows come one by one
		return
	}
	c.span(alike, v, n)
}

// absent appends n nulls.
func (c *values) absent(n int) {
	switch {
	case c.kind.isList(): // lists have an end in each row
		end := len(c.ints) + len(c.floats)
		for range n {
			c.list(end, false)
		}
	case n < 8 && c.open > 0: // among others they are cheaper as some of them
		for range n {
			c.append(0)
			c.valid[len(c.valid)-1] = false
		}
	default:
		c.span(absent, 0, n)
	}
}

// Extend sets integers of as many rows, which are copied. It is for columns of integers, truths and, by their
// codes, texts. Those that are not valid are null; nil: all are.
func (b *Batch) Extend(column int, v []int64, valid []bool) {
	c := &b.columns[column]
	c.catchUp(b.rows)
	c.rows += len(v)
	c.open += len(v)
	from := len(c.ints)
	c.ints = append(c.ints, v...)
	if c.kind == Int32 || c.kind == Uint32 {
		for i, x := range c.ints[from:] {
			c.ints[from+i] = c.fit(x)
		}
	}
	if c.null && valid != nil {
		c.valid = append(c.valid, valid...)
	} else if c.null {
		from := len(c.valid)
		c.valid = slices.Grow(c.valid, len(v))[:from+len(v)]
		for i := range c.valid[from:] {
			c.valid[from+i] = true
		}
	}
	b.bytes += 8 * int64(len(v))
}

// Code is a number for a text of a column, which [Batch.Extend] and [Batch.Fill] take in its place: for texts that
// are few. It is good as long as the batch is.
func (b *Batch) Code(column int, v string) int64 {
	w := &b.columns[column].words
	code := w.code(v)
	w.kept = max(w.kept, int(code)+1)
	return int64(code)
}

// EndRow ends the row: columns without a value are null. One that must have a value is an error, as is a column
// that was set twice.
func (b *Batch) EndRow() error {
	b.rows++
	for _, i := range b.required { // of the others those who read the batch find out
		if b.columns[i].rows < b.rows {
			return fmt.Errorf("column %s has no value in row %d", b.schema.Columns[i].Name, b.rows-1)
		}
	}
	return b.err
}

// EndRows ends n rows: columns without values are null in all of them. Columns that have fewer or more, or none
// where one must be, are an error.
func (b *Batch) EndRows(n int) error {
	if n == 1 {
		return b.EndRow()
	}
	from := b.rows
	b.rows += n
	for i := range b.columns {
		c := &b.columns[i]
		switch {
		case c.rows == b.rows:
		case c.rows > from:
			return fmt.Errorf("column %s has %d values in %d rows", b.schema.Columns[i].Name, c.rows-from, n)
		case !c.null:
			return fmt.Errorf("column %s has no value in row %d", b.schema.Columns[i].Name, c.rows)
		}
	}
	return b.err
}

// settle makes every column as long as the batch, for those who read it.
func (b *Batch) settle() error {
	for i := range b.columns {
		c := &b.columns[i]
		c.catchUp(b.rows)
		if c.rows != b.rows {
			return fmt.Errorf("column %s has %d values in %d rows: end the rows first", b.schema.Columns[i].Name,
				c.rows, b.rows)
		}
		c.settle()
	}
	return b.err
}

// each calls f for every row of a column that is not a list.
func (c *values) each(f func(v int64, valid bool)) {
	at := 0
	for _, s := range c.runs {
		for range s.n {
			switch s.how {
			case single:
				f(c.ints[at], !c.null || c.valid[at])
				at++
			default:
				f(s.value, s.how == alike)
			}
		}
	}
}
