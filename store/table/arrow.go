package table

import (
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Arrow writes an Arrow file (the IPC file format, also called Feather 2), without compression, so that it can be
// mapped.
type Arrow struct {
	schema *arrow.Schema
	out    *ipc.FileWriter
	build  *array.RecordBuilder
}

var arrowTypes = map[Kind]arrow.DataType{
	Int32: arrow.PrimitiveTypes.Int32, Int64: arrow.PrimitiveTypes.Int64,
	Uint32: arrow.PrimitiveTypes.Uint32, Uint64: arrow.PrimitiveTypes.Uint64, Text: arrow.BinaryTypes.String,
	Bool: arrow.FixedWidthTypes.Boolean, Float64: arrow.PrimitiveTypes.Float64,
	Int32List:   arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int32),
	Float32List: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float32),
}

// NewArrow begins a file.
func NewArrow(w io.Writer, s Schema) (*Arrow, error) {
	a := &Arrow{schema: arrow.NewSchema(arrowFields(s, "UTC"), arrowMetadata(s.Metadata))}
	var err error
	if a.out, err = ipc.NewFileWriter(w, ipc.WithSchema(a.schema)); err != nil {
		return nil, fmt.Errorf("begin Arrow file: %w", err)
	}
	a.build = array.NewRecordBuilder(memory.DefaultAllocator, a.schema)
	return a, nil
}

// Write writes the batch as one record batch; an empty one is nothing.
func (a *Arrow) Write(b *Batch) error {
	if err := b.settle(); err != nil || b.rows == 0 {
		return err
	}
	for i := range b.columns {
		appendArrow(a.build.Field(i), &b.columns[i])
	}
	record := a.build.NewRecordBatch()
	defer record.Release()
	if err := a.out.Write(record); err != nil {
		return fmt.Errorf("write Arrow file: %w", err)
	}
	return nil
}

// appendArrow appends a column's values.
func appendArrow(to array.Builder, c *values) {
	switch to := to.(type) {
	case *array.Int32Builder:
		c.each(orNull(to, func(v int64) { to.Append(int32(v)) }))
	case *array.Int64Builder:
		c.each(orNull(to, to.Append))
	case *array.TimestampBuilder:
		c.each(orNull(to, func(v int64) { to.Append(arrow.Timestamp(v)) }))
	case *array.DurationBuilder:
		c.each(orNull(to, func(v int64) { to.Append(arrow.Duration(v)) }))
	case *array.Uint32Builder:
		c.each(orNull(to, func(v int64) { to.Append(uint32(v)) }))
	case *array.Uint64Builder:
		c.each(orNull(to, func(v int64) { to.Append(uint64(v)) }))
	case *array.BooleanBuilder:
		c.each(orNull(to, func(v int64) { to.Append(v != 0) }))
	case *array.Float64Builder:
		c.each(orNull(to, func(v int64) { to.Append(math.Float64frombits(uint64(v))) }))
	case *array.StringBuilder:
		c.each(orNull(to, func(v int64) { to.Append(c.words.list[v]) }))
	case *array.ListBuilder:
		begin := 0
		for i, end := range c.ends {
			if c.valid[i] {
				to.Append(true)
				appendElements(to.ValueBuilder(), c, begin, end)
			} else {
				to.AppendNull()
			}
			begin = end
		}
	}
}

// orNull appends a value where there is one.
func orNull(to array.Builder, value func(int64)) func(int64, bool) {
	return func(v int64, valid bool) {
		if valid {
			value(v)
		} else {
			to.AppendNull()
		}
	}
}

// appendElements appends the elements of one list.
func appendElements(to array.Builder, c *values, begin, end int) {
	switch to := to.(type) {
	case *array.Float32Builder:
		to.AppendValues(c.floats[begin:end], nil)
	case *array.Int32Builder:
		for _, v := range c.ints[begin:end] {
			to.Append(int32(v))
		}
	}
}

// Close ends the file. It does not close the writer after it.
func (a *Arrow) Close() error {
	a.build.Release()
	if err := a.out.Close(); err != nil {
		return fmt.Errorf("end Arrow file: %w", err)
	}
	return nil
}
