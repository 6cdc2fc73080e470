package table

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// Parquet writes a Parquet file: zstd level 3, floats with their bytes in streams of their own (BYTE_STREAM_SPLIT), texts and small
// integers as dictionaries. The same rows in the same batches give the same bytes.
type Parquet struct {
	schema Schema
	out    *file.Writer
	levels levels // buffers
	int32s []int32
	bytes  []parquet.ByteArray
}

// levels say where lists begin and what is null, as Parquet writes it.
type levels struct{ def, rep []int16 }

// NewParquet begins a file.
func NewParquet(w io.Writer, s Schema) (*Parquet, error) {
	nodes := make(schema.FieldList, len(s.Columns))
	properties := []parquet.WriterProperty{
		parquet.WithAllocator(memory.DefaultAllocator), parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(3),
		parquet.WithCreatedBy("llamatap"), parquet.WithVersion(parquet.V2_LATEST),
	}
	for i, c := range s.Columns {
		node, err := parquetNode(c)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		nodes[i] = node
		if c.Kind == Float32List {
			path := c.Name + ".list.element"
			properties = append(properties, parquet.WithDictionaryFor(path, false), parquet.WithStatsFor(path, false),
				parquet.WithEncodingFor(path, parquet.Encodings.ByteStreamSplit))
		}
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
	if err != nil {
		return nil, err
	}
	about := metadata.NewKeyValueMetadata()
	for _, m := range s.Metadata {
		if err := about.Append(m[0], m[1]); err != nil {
			return nil, err
		}
	}
	// The library would close what can be closed.
	out, err := file.NewParquetWriterWithError(struct{ io.Writer }{w}, root, file.WithWriterProps(parquet.NewWriterProperties(properties...)), file.WithWriteMetadata(about))
	if err != nil {
		return nil, fmt.Errorf("begin Parquet file: %w", err)
	}
	return &Parquet{schema: s, out: out}, nil
}

func parquetNode(c Column) (schema.Node, error) {
	repetition := parquet.Repetitions.Required
	if c.Null {
		repetition = parquet.Repetitions.Optional
	}
	number := func(physical parquet.Type, bits int8, signed bool) (schema.Node, error) {
		return schema.NewPrimitiveNodeLogical(c.Name, repetition, schema.NewIntLogicalType(bits, signed), physical, -1, -1)
	}
	switch c.Kind {
	case Int32:
		return number(parquet.Types.Int32, 32, true)
	case Int64:
		return number(parquet.Types.Int64, 64, true)
	case Uint32:
		return number(parquet.Types.Int32, 32, false)
	case Uint64:
		return number(parquet.Types.Int64, 64, false)
	case Text:
		return schema.NewPrimitiveNodeLogical(c.Name, repetition, schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
	case Bool:
		return schema.NewBooleanNode(c.Name, repetition, -1), nil
	case Int32List:
		return schema.ListOfWithName(c.Name, schema.NewInt32Node("element", parquet.Repetitions.Required, -1), repetition, -1)
	}
	return schema.ListOfWithName(c.Name, schema.NewFloat32Node("element", parquet.Repetitions.Required, -1), repetition, -1)
}

// Write writes the batch as one row group; an empty one is nothing.
func (p *Parquet) Write(b *Batch) error {
	if b.rows == 0 {
		return nil
	}
	group, err := p.out.AppendRowGroupChecked()
	if err != nil {
		return fmt.Errorf("write Parquet file: %w", err)
	}
	for i := range b.columns {
		column, err := group.NextColumn()
		if err == nil {
			err = p.column(column, p.schema.Columns[i], &b.columns[i])
		}
		if err == nil {
			err = column.Close()
		}
		if err != nil {
			return fmt.Errorf("write Parquet file, column %s: %w", p.schema.Columns[i].Name, err)
		}
	}
	if err := group.Close(); err != nil {
		return fmt.Errorf("write Parquet file: %w", err)
	}
	return nil
}

// chunk is how many values are handed over at a time, rounded to whole rows.
const chunk = 1 << 16

// column writes a column's values in chunks of rows.
func (p *Parquet) column(to file.ColumnChunkWriter, c Column, v *values) error {
	for row := 0; row < len(v.valid); {
		first, begin := row, v.begin(row)
		for row++; row < len(v.valid) && v.begin(row)-begin < chunk; row++ {
		}
		if err := p.rows(to, c, v, first, row); err != nil {
			return err
		}
	}
	return nil
}

// begin is the number of the first value of a row.
func (v *values) begin(row int) int {
	if v.ends == nil {
		return row
	}
	if row == 0 {
		return 0
	}
	return v.ends[row-1]
}

// rows writes rows first to end-1.
func (p *Parquet) rows(to file.ColumnChunkWriter, c Column, v *values, first, end int) (err error) {
	p.level(c, v, first, end)
	def, rep := p.levels.def, p.levels.rep
	switch to := to.(type) {
	case *file.Float32ColumnChunkWriter:
		_, err = to.WriteBatch(v.floats[v.begin(first):v.begin(end)], def, rep)
	case *file.Int32ColumnChunkWriter:
		p.int32s = p.int32s[:0]
		for i := v.begin(first); i < v.begin(end); i++ {
			if v.ends != nil || v.valid[i] {
				p.int32s = append(p.int32s, int32(v.ints[i]))
			}
		}
		_, err = to.WriteBatch(p.int32s, def, rep)
	case *file.Int64ColumnChunkWriter:
		longs := make([]int64, 0, end-first)
		for i := first; i < end; i++ {
			if v.valid[i] {
				longs = append(longs, v.ints[i])
			}
		}
		_, err = to.WriteBatch(longs, def, rep)
	case *file.BooleanColumnChunkWriter:
		truths := make([]bool, 0, end-first)
		for i := first; i < end; i++ {
			if v.valid[i] {
				truths = append(truths, v.ints[i] != 0)
			}
		}
		_, err = to.WriteBatch(truths, def, rep)
	case *file.ByteArrayColumnChunkWriter:
		p.bytes = p.bytes[:0]
		for i := first; i < end; i++ {
			if v.valid[i] {
				p.bytes = append(p.bytes, parquet.ByteArray(v.texts[i]))
			}
		}
		_, err = to.WriteBatch(p.bytes, def, rep)
	}
	return err
}

// level fills the levels of rows: a list is defined, and begins with repetition 0; its elements are one deeper.
func (p *Parquet) level(c Column, v *values, first, end int) {
	l := &p.levels
	l.def, l.rep = l.def[:0], l.rep[:0]
	defined := int16(0)
	if c.Null {
		defined = 1
	}
	for row := first; row < end; row++ {
		switch {
		case !v.valid[row]:
			l.def, l.rep = append(l.def, 0), append(l.rep, 0)
		case v.ends == nil:
			l.def = append(l.def, defined)
		case v.begin(row) == v.begin(row+1):
			l.def, l.rep = append(l.def, defined), append(l.rep, 0)
		default:
			for i := v.begin(row); i < v.begin(row+1); i++ {
				l.def, l.rep = append(l.def, defined+1), append(l.rep, 1)
			}
			l.rep[len(l.rep)-(v.begin(row+1)-v.begin(row))] = 0
		}
	}
	if v.ends == nil {
		l.rep = nil
		if !c.Null {
			l.def = nil
		}
	}
}

// AddMetadata puts a text about the table as a whole into the file, as [Schema].Metadata does, for what is known only at its end.
func (p *Parquet) AddMetadata(key, value string) error {
	if err := p.out.AppendKeyValueMetadata(key, value); err != nil {
		return fmt.Errorf("write Parquet file: metadata %s: %w", key, err)
	}
	return nil
}

// Close ends the file. It does not close the writer behind it.
func (p *Parquet) Close() error {
	if err := p.out.Close(); err != nil {
		return fmt.Errorf("end Parquet file: %w", err)
	}
	return nil
}
