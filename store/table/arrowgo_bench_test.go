//go:build nightly

package table_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/llamatap/llamatap/store/table"
)

// Columns are all rows of a table, as arrow-go's writer takes them.
type Columns struct {
	rows   int
	schema table.Schema
	levels [][]int16
	ints   [][]int64
	texts  [][]parquet.ByteArray
}

// NewColumns reads a table whose rows are one row group.
func NewColumns(text []byte, s table.Schema) (*Columns, error) {
	r, err := table.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if r.Groups() != 1 {
		return nil, fmt.Errorf("%d row groups, one is wanted", r.Groups())
	}
	c := &Columns{rows: int(r.Rows()), schema: s}
	for _, column := range s.Columns {
		v, err := r.Column(0, column.Name)
		if err != nil {
			return nil, err
		}
		levels := make([]int16, c.rows)
		var ints []int64
		var texts []parquet.ByteArray
		for i, valid := range v.Valid {
			if !valid {
				continue
			}
			if levels[i] = 1; column.Kind == table.Text {
				texts = append(texts, parquet.ByteArray(v.Texts[i]))
			} else {
				ints = append(ints, v.Ints[i])
			}
		}
		c.levels, c.ints, c.texts = append(c.levels, levels), append(c.ints, ints), append(c.texts, texts)
	}
	return c, nil
}

// WriteArrowGo writes the rows with Apache's library for Go, on one thread: with the same compression, dictionaries
// and statistics, column by column from slices, without its arrays in between. It is what this package is compared
// with.
func (c *Columns) WriteArrowGo() (Rate, error) {
	var to counter
	began := time.Now()
	nodes := make(schema.FieldList, len(c.schema.Columns))
	properties := []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithCompressionLevel(3), parquet.WithVersion(parquet.V2_LATEST)}
	for i, column := range c.schema.Columns {
		repetition := parquet.Repetitions.Required
		if column.Null {
			repetition = parquet.Repetitions.Optional
		}
		nodes[i] = schema.NewInt64Node(column.Name, repetition, -1)
		if column.Kind == table.Text {
			nodes[i] = schema.NewByteArrayNode(column.Name, repetition, -1)
		}
		if column.Encoding == table.Delta {
			properties = append(properties, parquet.WithDictionaryFor(column.Name, false),
				parquet.WithEncodingFor(column.Name, parquet.Encodings.DeltaBinaryPacked))
		}
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
	if err != nil {
		return Rate{}, err
	}
	out, err := file.NewParquetWriterWithError(&to, root,
		file.WithWriterProps(parquet.NewWriterProperties(properties...)))
	if err != nil {
		return Rate{}, err
	}
	group, err := out.AppendRowGroupChecked()
	if err != nil {
		return Rate{}, err
	}
	for i, column := range c.schema.Columns {
		if err := c.column(group, i, column.Null); err != nil {
			return Rate{}, err
		}
	}
	if err := group.Close(); err != nil {
		return Rate{}, err
	}
	err = out.Close()
	return Rate{int64(c.rows), to.n, time.Since(began)}, err
}

// column writes a column.
func (c *Columns) column(group file.SerialRowGroupWriter, i int, null bool) error {
	to, err := group.NextColumn()
	if err != nil {
		return err
	}
	levels := c.levels[i]
	if !null {
		levels = nil
	}
	switch to := to.(type) {
	case *file.Int64ColumnChunkWriter:
		_, err = to.WriteBatch(c.ints[i], levels, nil)
	case *file.ByteArrayColumnChunkWriter:
		_, err = to.WriteBatch(c.texts[i], levels, nil)
	}
	if err != nil {
		return err
	}
	return to.Close()
}

func init() { readers["arrow-go"] = readArrowGo }

// readArrowGo reads the columns of an analysis with Apache's library for Go, on one thread, column by column into
// slices that are used again, and adds them up.
func readArrowGo(text []byte) (Rate, error) {
	began := time.Now()
	r, err := file.NewParquetReader(bytes.NewReader(text))
	if err != nil {
		return Rate{}, err
	}
	defer r.Close()
	const rows = 1 << 16
	ints, narrow := make([]int64, rows), make([]int32, rows)
	texts, levels := make([]parquet.ByteArray, rows), make([]int16, rows)
	sum := int64(0)
	for group := range r.NumRowGroups() {
		for _, name := range Analysis {
			chunk, err := r.RowGroup(group).Column(r.MetaData().Schema.ColumnIndexByName(name))
			if err != nil {
				return Rate{}, err
			}
			for chunk.HasNext() {
				values := 0
				switch c := chunk.(type) {
				case *file.Int64ColumnChunkReader:
					_, values, err = c.ReadBatch(rows, ints, levels, nil)
					for _, v := range ints[:values] {
						sum += v
					}
				case *file.ByteArrayColumnChunkReader:
					_, values, err = c.ReadBatch(rows, texts, levels, nil)
				case *file.Int32ColumnChunkReader:
					_, values, err = c.ReadBatch(rows, narrow, levels, nil)
				}
				if err != nil {
					return Rate{}, err
				}
				if values == 0 {
					break
				}
			}
		}
	}
	_ = sum
	return Rate{r.NumRows(), int64(len(text)), time.Since(began)}, nil
}

// BenchmarkWriteArrowGo is the yardstick: Apache's library with the same rows.
func BenchmarkWriteArrowGo(b *testing.B) {
	for _, c := range []struct {
		name    string
		samples bool
		source  Source
	}{{"ledger", false, NewLedger()}, {"samples", true, NewSamples()}} {
		b.Run(c.name, func(b *testing.B) {
			text, err := File(c.source, Schema(c.samples), 1<<18)
			if err != nil {
				b.Fatal(err)
			}
			columns, err := NewColumns(text, Schema(c.samples))
			if err != nil {
				b.Fatal(err)
			}
			var all Rate
			for b.Loop() {
				r, err := columns.WriteArrowGo()
				if err != nil {
					b.Fatal(err)
				}
				all.Rows, all.Bytes, all.Duration = all.Rows+r.Rows, all.Bytes+r.Bytes, all.Duration+r.Duration
			}
			report(b, all)
		})
	}
}
