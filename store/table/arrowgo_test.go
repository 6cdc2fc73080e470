//go:build nightly

package table

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// TestReadBefore reads tables as arrow-go writes them, which wrote those of runs before this package did itself.
func TestReadBefore(t *testing.T) {
	const n = 5000
	number := schema.MustPrimitive(schema.NewPrimitiveNodeLogical("n", parquet.Repetitions.Optional,
		schema.NewIntLogicalType(32, false), parquet.Types.Int32, -1, -1))
	text := schema.MustPrimitive(schema.NewPrimitiveNodeLogical("t", parquet.Repetitions.Required,
		schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1))
	root := schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required,
		schema.FieldList{number, text, schema.NewBooleanNode("y", parquet.Repetitions.Required, -1)}, -1))
	about := metadata.NewKeyValueMetadata()
	var to bytes.Buffer
	properties := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithDataPageSize(2000))
	err := about.Append(VersionKey, "1.0")
	out := file.NewParquetWriter(&to, root, file.WithWriterProps(properties), file.WithWriteMetadata(about))
	for group := range 2 {
		var numbers []int32
		var texts []parquet.ByteArray
		var truths []bool
		levels := make([]int16, n)
		for i := range n {
			if i%3 != 0 {
				levels[i] = 1
				numbers = append(numbers, -int32(i))
			}
			texts, truths = append(texts, parquet.ByteArray(fmt.Sprint(i%(7+group)))), append(truths, i%2 == 0)
		}
		rows, err := out.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		write := func(put func(file.ColumnChunkWriter) (int64, error)) {
			column, nextErr := rows.NextColumn()
			_, putErr := put(column)
			err = errors.Join(err, nextErr, putErr, column.Close())
		}
		write(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.Int32ColumnChunkWriter).WriteBatch(numbers, levels, nil)
		})
		write(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.ByteArrayColumnChunkWriter).WriteBatch(texts, nil, nil)
		})
		write(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.BooleanColumnChunkWriter).WriteBatch(truths, nil, nil)
		})
		err = errors.Join(err, rows.Close())
	}
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(to.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(Form{Name: "trace", Columns: []Column{{Name: "n", Kind: Int64}, {Name: "t", Kind: Text},
		{Name: "y", Kind: Bool}}}); err != nil {
		t.Error(err)
	}
	for group := range 2 {
		numbers, errN := r.Column(group, "n")
		texts, errT := r.Column(group, "t")
		truths, errY := r.Column(group, "y")
		low, high, ok := r.Bounds(group, "n")
		if err := errors.Join(errN, errT, errY); err != nil || !ok || low != 1<<32-(n-1) || high != 1<<32-1 ||
			len(numbers.Valid) != n {
			t.Fatalf("%v; from %d to %d, %t", err, low, high, ok)
		}
		for i := range n {
			want := int64(0)
			if i%3 != 0 {
				want = int64(uint32(-int32(i)))
			}
			if numbers.Ints[i] != want || numbers.Valid[i] != (i%3 != 0) || texts.Texts[i] != fmt.Sprint(i%(7+group)) ||
				truths.Ints[i] != int64(1-i%2) {
				t.Fatalf("row %d: %d, %q, %d", i, numbers.Ints[i], texts.Texts[i], truths.Ints[i])
			}
		}
	}
}

// TestArrowGoReadsEveryKind compares every value with what arrow-go reads, which shares nothing with this package.
func TestArrowGoReadsEveryKind(t *testing.T) {
	for seed := range uint64(9) {
		m := &model{schema: modelSchema()}
		m.arrowGo(t, m.write(t, seed, modelOptions[seed%3]))
	}
}

// arrowGo lets Apache's library for Go read every value.
func (m *model) arrowGo(t *testing.T, text []byte) {
	t.Helper()
	in, err := file.NewParquetReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for c, column := range m.schema.Columns {
		row := 0
		for group := range in.NumRowGroups() {
			chunk, err := in.RowGroup(group).Column(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range arrowGoValues(t, chunk, column.Kind, in.RowGroup(group).NumRows()) {
				if got != m.rows[row][c] {
					t.Fatalf("arrow-go: %s, row %d: %v, want %v", column.Name, row, got, m.rows[row][c])
				}
				row++
			}
		}
		if row != len(m.rows) {
			t.Fatalf("arrow-go: %s: %d rows of %d", column.Name, row, len(m.rows))
		}
	}
}

// arrowGoValues reads n rows of a column.
func arrowGoValues(t *testing.T, chunk file.ColumnChunkReader, kind Kind, n int64) (all []any) {
	t.Helper()
	switch chunk := chunk.(type) {
	case *file.Int32ColumnChunkReader:
		return arrowGoBatch(t, chunk.ReadBatch, chunk, n, func(v int32) any { return value(kind, int64(v)) })
	case *file.Int64ColumnChunkReader:
		return arrowGoBatch(t, chunk.ReadBatch, chunk, n, func(v int64) any { return value(kind, v) })
	case *file.BooleanColumnChunkReader:
		return arrowGoBatch(t, chunk.ReadBatch, chunk, n, func(v bool) any { return v })
	case *file.ByteArrayColumnChunkReader:
		return arrowGoBatch(t, chunk.ReadBatch, chunk, n, func(v parquet.ByteArray) any { return string(v) })
	}
	t.Fatalf("%T", chunk)
	return nil
}

func arrowGoBatch[T any](t *testing.T, read func(int64, []T, []int16, []int16) (int64, int, error),
	chunk file.ColumnChunkReader, n int64, of func(T) any) (all []any) {
	t.Helper()
	values, levels := make([]T, 1000), make([]int16, 1000)
	for int64(len(all)) < n {
		rows, _, err := read(1000, values, levels, nil)
		if err != nil || rows == 0 {
			t.Fatalf("arrow-go: %d rows of %d: %v", len(all), n, err)
		}
		next := 0
		for _, level := range levels[:rows] {
			if level < chunk.Descriptor().MaxDefinitionLevel() {
				all = append(all, nil)
				continue
			}
			all = append(all, of(values[next]))
			next++
		}
	}
	return all
}
