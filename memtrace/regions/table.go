package regions

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// The columns, in order. Those from kv on stand behind the ones that mrm-trace's users know.
const (
	colID = iota
	colType
	colName
	colTensor
	colLayer
	colStart
	colEnd
	colSize
	colDType
	colShape
	colDevice
	colFirstWrite
	colLastWrite
	colFirstRead
	colLastRead
	colWrites
	colReads
	colWritten
	colRead
	colKV
	colCtx
	colOp
	colBuffer
	colOffset
	colBufferType
	colFile
	colFileOffset
	colAlloc
	colFree
	colMoves
	colPID
)

func schema() table.Schema {
	return table.Schema{
		Columns: []table.Column{
			{Name: "region_id", Kind: table.Int32}, {Name: "region_type", Kind: table.Text}, {Name: "name", Kind: table.Text},
			{Name: "tensor", Kind: table.Text, Null: true}, {Name: "layer", Kind: table.Int32, Null: true},
			{Name: "start_addr", Kind: table.Uint64, Null: true}, {Name: "end_addr", Kind: table.Uint64, Null: true}, {Name: "size_bytes", Kind: table.Int64},
			{Name: "dtype", Kind: table.Text, Null: true}, {Name: "shape", Kind: table.Int32List, Null: true}, {Name: "device", Kind: table.Text, Null: true},
			{Name: "first_write_ns", Kind: table.Int64, Null: true}, {Name: "last_write_ns", Kind: table.Int64, Null: true},
			{Name: "first_read_ns", Kind: table.Int64, Null: true}, {Name: "last_read_ns", Kind: table.Int64, Null: true},
			{Name: "n_writes", Kind: table.Int64}, {Name: "n_reads", Kind: table.Int64},
			{Name: "bytes_written", Kind: table.Int64}, {Name: "bytes_read", Kind: table.Int64, Null: true},
			{Name: "kv", Kind: table.Text, Null: true}, {Name: "ctx", Kind: table.Int32, Null: true}, {Name: "op", Kind: table.Text, Null: true},
			{Name: "buffer_id", Kind: table.Int64, Null: true}, {Name: "offset", Kind: table.Int64, Null: true}, {Name: "buffer_type", Kind: table.Text, Null: true},
			{Name: "file", Kind: table.Text, Null: true}, {Name: "file_offset", Kind: table.Int64, Null: true},
			{Name: "alloc_ns", Kind: table.Int64, Null: true}, {Name: "free_ns", Kind: table.Int64, Null: true}, {Name: "moves", Kind: table.Int32},
			{Name: "pid", Kind: table.Int32, Null: true},
		},
		Metadata: [][2]string{{memtrace.VersionKey, memtrace.Version}},
	}
}

// batchRows is how many rows are gathered before they are written as one row group.
const batchRows = 1 << 14

// rows writes regions.
type rows struct {
	*table.Batch
	m      *memtrace.RegionMap
	offset int64 // of Unix time
}

// WriteTable writes a map as region_map.parquet, which is complete then. unixOffset is what makes a CLOCK_MONOTONIC time a Unix time.
func WriteTable(w io.Writer, m *memtrace.RegionMap, doubts memtrace.Doubts, unixOffset int64) error {
	s := schema()
	about, err := json.Marshal(doubts)
	if err != nil {
		return fmt.Errorf("write %s: %w", memtrace.FileName, err)
	}
	s.Metadata = append(s.Metadata, [2]string{memtrace.DoubtsKey, string(about)})
	out, err := table.NewParquet(w, s)
	if err != nil {
		return fmt.Errorf("begin %s: %w", memtrace.FileName, err)
	}
	b := rows{table.NewBatch(s), m, unixOffset}
	for _, r := range m.Regions() {
		if err = b.put(r); err == nil && b.Rows() == batchRows {
			err = out.Write(b.Batch)
			b.Reset()
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", memtrace.FileName, err)
		}
	}
	if err = out.Write(b.Batch); err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("complete %s: %w", memtrace.FileName, err)
	}
	return nil
}

func (b *rows) put(r *memtrace.Region) error {
	b.Int(colID, int64(r.ID))
	b.Batch.Text(colType, r.Type.String())
	b.Batch.Text(colName, r.Name)
	b.Int(colSize, int64(r.Bytes))
	b.text(colTensor, r.Tensor)
	b.text(colDType, r.DType)
	b.text(colKV, r.Part)
	b.text(colOp, r.Op)
	if r.Layer != memtrace.NoLayer {
		b.Int(colLayer, int64(r.Layer))
	}
	if r.Ctx >= 0 {
		b.Int(colCtx, int64(r.Ctx))
	}
	if shape, ok := small(r.Shape); ok {
		b.Ints(colShape, shape)
	}
	b.Int(colMoves, int64(r.Moves))
	if r.PID != 0 {
		b.Int(colPID, int64(r.PID))
	}
	b.place(r)
	b.use(&r.Use)
	b.time(colAlloc, r.From)
	to := r.To
	if buffer := b.m.Buffer(r.Buffer); r.Type == memtrace.Activation && buffer != nil {
		to = buffer.To // it lies there as long as graphs want it to
	}
	if to != memtrace.Forever {
		b.time(colFree, to)
	}
	return b.EndRow()
}

// place says where a region lies. Memory of a device has no address.
func (b *rows) place(r *memtrace.Region) {
	buffer := b.m.Buffer(r.Buffer)
	if buffer == nil {
		b.Int(colStart, int64(r.Offset))
		b.Int(colEnd, int64(r.Offset+r.Bytes))
		return
	}
	b.Int(colBuffer, int64(r.Buffer))
	b.Int(colOffset, int64(r.Offset))
	b.text(colBufferType, buffer.Type)
	b.text(colDevice, buffer.Device)
	if buffer.Host {
		b.Int(colStart, int64(buffer.Base+r.Offset))
		b.Int(colEnd, int64(buffer.Base+r.Offset+r.Bytes))
	}
	if buffer.File != "" {
		b.Batch.Text(colFile, buffer.File)
		b.Int(colFileOffset, int64(buffer.FileOffset+r.Offset))
	}
}

func (b *rows) use(u *memtrace.Use) {
	b.time(colFirstWrite, u.FirstWriteNS)
	b.time(colLastWrite, u.LastWriteNS)
	b.time(colFirstRead, u.FirstReadNS)
	b.time(colLastRead, u.LastReadNS)
	b.Int(colWrites, u.Writes)
	b.Int(colReads, u.Reads)
	b.Int(colWritten, u.BytesWritten)
	if u.Unknown == 0 {
		b.Int(colRead, u.BytesRead)
	}
}

// text sets a text, if there is one.
func (b *rows) text(column int, s string) {
	if s != "" {
		b.Batch.Text(column, s)
	}
}

// time sets a time, if there is one.
func (b *rows) time(column int, mono int64) {
	if mono != 0 {
		b.Int(column, mono+b.offset)
	}
}

// small tells whether a shape is one that the table can hold.
func small(shape []int64) ([]int64, bool) {
	for _, n := range shape {
		if n > math.MaxInt32 {
			return nil, false
		}
	}
	return shape, len(shape) > 0
}
