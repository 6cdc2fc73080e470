package ledger

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// The columns, in order. Those from kv on follow the ones that mrm-trace's users know.
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

func regionSchema() table.Schema {
	return table.Schema{
		Columns: []table.Column{
			{Name: "region_id", Kind: table.Int32, Description: "number of the region in the file"},
			{Name: "region_type", Kind: table.Text, Description: "type of the region"},
			{Name: "name", Kind: table.Text, Description: "tensor, buffer or mapped file"},
			{Name: "tensor", Kind: table.Text, Null: true, Description: "name of the tensor; null: no tensor"},
			{Name: "layer", Kind: table.Int32, Null: true, Description: "layer of the tensor"},
			{Name: "start_addr", Kind: table.Uint64, Null: true,
				Description: "first address in the process; null on a device"},
			{Name: "end_addr", Kind: table.Uint64, Null: true,
				Description: "address after the last byte; null on a device"},
			{Name: "size_bytes", Kind: table.Int64, Unit: table.Bytes, Description: "from the first byte to the last"},
			{Name: "dtype", Kind: table.Text, Null: true, Description: "ggml's type"},
			{Name: "shape", Kind: table.Int32List, Null: true, Description: "elements by dimension, ne[0] first"},
			{Name: "device", Kind: table.Text, Null: true, Description: "ggml's name of the device"},
			{Name: "first_write_ns", Kind: table.Int64, Null: true, Unit: table.UnixNS,
				Description: "beginning of the measured interval of the first write by an op; null: never"},
			{Name: "last_write_ns", Kind: table.Int64, Null: true, Unit: table.UnixNS,
				Description: "beginning of the measured interval of the last write by an op; null: never"},
			{Name: "first_read_ns", Kind: table.Int64, Null: true, Unit: table.UnixNS,
				Description: "beginning of the measured interval of the first read by an op; null: never"},
			{Name: "last_read_ns", Kind: table.Int64, Null: true, Unit: table.UnixNS,
				Description: "beginning of the measured interval of the last read by an op; null: never"},
			{Name: "n_writes", Kind: table.Int64, Description: "ops that wrote"},
			{Name: "n_reads", Kind: table.Int64, Description: "ops that read"},
			{Name: "bytes_written", Kind: table.Int64, Unit: table.Bytes,
				Description: "sum over the ops that wrote, each byte once per op"},
			{Name: "bytes_read", Kind: table.Int64, Null: true, Unit: table.Bytes,
				Description: "sum over the ops that read, each byte once per op; null: unknown"},
			{Name: "kv", Kind: table.Text, Null: true, Description: "tensor of a cache: k, v, r or s"},
			{Name: "ctx", Kind: table.Int32, Null: true, Description: "context; null: none, or several"},
			{Name: "op", Kind: table.Text, Null: true, Description: "op that computes the activation"},
			{Name: "buffer_id", Kind: table.Int64, Null: true, Description: "backend buffer"},
			{Name: "offset", Kind: table.Int64, Null: true, Unit: table.Bytes,
				Description: "from the beginning of the buffer"},
			{Name: "buffer_type", Kind: table.Text, Null: true, Description: "ggml's name of the buffer type"},
			{Name: "file", Kind: table.Text, Null: true, Description: "mapped file"},
			{Name: "file_offset", Kind: table.Int64, Null: true, Unit: table.Bytes,
				Description: "where in the mapped file the region begins"},
			{Name: "alloc_ns", Kind: table.Int64, Null: true, Unit: table.UnixNS,
				Description: "when its memory was allocated"},
			{Name: "free_ns", Kind: table.Int64, Null: true, Unit: table.UnixNS,
				Description: "when its memory was freed; null: still there at the end"},
			{Name: "moves", Kind: table.Int32, Description: "how often the activation got other memory"},
			{Name: "pid", Kind: table.Int32, Null: true,
				Description: "process whose memory it is; null: the process of the run"},
		},
		Metadata: [][2]string{{table.VersionKey, table.Version}},
	}
}

// regionBatchRows is how many rows are gathered before they are written as one row group.
const regionBatchRows = 1 << 14

// regionRows writes regions.
type regionRows struct {
	*table.Batch
	m      *memtrace.RegionMap
	offset int64 // of Unix time
}

// WriteRegions writes a map as region_map.parquet, which is complete then. unixOffset is what makes a CLOCK_MONOTONIC
// time a Unix time; where it is 0 times are durations since the zero of a clock of their own.
func WriteRegions(w io.Writer, m *memtrace.RegionMap, doubts memtrace.Doubts, unixOffset int64) error {
	s := regionSchema()
	for i := range s.Columns {
		if unixOffset == 0 && s.Columns[i].Unit == table.UnixNS {
			s.Columns[i].Unit = table.NS
		}
	}
	about, err := json.Marshal(doubts)
	if err != nil {
		return fmt.Errorf("write %s: %w", rundir.RegionsName, err)
	}
	s.Metadata = append(s.Metadata, [2]string{memtrace.DoubtsKey, string(about)})
	out, err := table.NewParquet(w, s)
	if err != nil {
		return fmt.Errorf("begin %s: %w", rundir.RegionsName, err)
	}
	b := regionRows{table.NewBatch(s), m, unixOffset}
	for _, r := range m.Regions() {
		if err = b.put(r); err == nil && b.Rows() == regionBatchRows {
			err = out.Write(b.Batch)
			b.Reset()
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", rundir.RegionsName, err)
		}
	}
	if err = out.Write(b.Batch); err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("complete %s: %w", rundir.RegionsName, err)
	}
	return nil
}

func (b *regionRows) put(r *memtrace.Region) error {
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
	b.setPlace(r)
	b.setUse(&r.Use)
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

// setPlace says where a region lies. Memory of a device has no address.
func (b *regionRows) setPlace(r *memtrace.Region) {
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

func (b *regionRows) setUse(u *memtrace.Use) {
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
func (b *regionRows) text(column int, s string) {
	if s != "" {
		b.Batch.Text(column, s)
	}
}

// time sets a time, if there is one.
func (b *regionRows) time(column int, mono int64) {
	if mono != 0 {
		b.Int(column, mono+b.offset)
	}
}

// small reports whether a shape is one that the table can hold.
func small(shape []int64) ([]int64, bool) {
	for _, n := range shape {
		if n > math.MaxInt32 {
			return nil, false
		}
	}
	return shape, len(shape) > 0
}
