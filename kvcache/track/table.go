package track

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// FileName is the name of the table in a run directory.
const FileName = rundir.LivesName

// The columns, in order. Those from ctx on follow the ones that mrm-trace's users know.
const (
	colBlock = iota
	colLayer
	colKV
	colSeq
	colPosStart
	colPosEnd
	colCellStart
	colCellEnd
	colAlloc
	colFirstWrite
	colLastWrite
	colWrites
	colFirstRead
	colLastRead
	colReads
	colEvict
	colReason
	colCensored
	colCtx
	colCache
	colCells
	colCellBytes
	colSharers
	colMoves
	colOrigin
)

func lifeSchema() table.Schema {
	when := func(name, description string) table.Column {
		return table.Column{Name: name, Kind: table.Int64, Null: true, Unit: table.UnixNS, Description: description}
	}
	return table.Schema{
		Columns: []table.Column{
			{Name: "block_id", Kind: table.Int32,
				Description: "block of the cache: lives that follow each other in one place have one"},
			{Name: "layer", Kind: table.Int32, Description: "layer"},
			{Name: "kv", Kind: table.Text, Description: "tensor of the cache: k, v, r or s"},
			{Name: "seq_id", Kind: table.Int32, Null: true, Description: "sequence that wrote the first cell"},
			{Name: "pos_start", Kind: table.Int32, Null: true, Description: "first position"},
			{Name: "pos_end", Kind: table.Int32, Null: true, Description: "position after the last one"},
			{Name: "cell_start", Kind: table.Int32, Description: "first cell"},
			{Name: "cell_end", Kind: table.Int32, Description: "cell after the last one"},
			when("alloc_ns", "beginning of the graph that wrote the first cell; null: unknown"),
			when("first_write_ns", "beginning of the measured interval of the first write"),
			when("last_write_ns", "beginning of the measured interval of the last write"),
			{Name: "n_writes", Kind: table.Int64, Description: "writes, one per cell and time"},
			when("first_read_ns", "beginning of the measured interval of the first read; null: never"),
			when("last_read_ns", "beginning of the measured interval of the last read; null: never"),
			{Name: "n_reads", Kind: table.Int64,
				Description: "reads, one per cell and attention node whose mask allows it"},
			when("evict_ns", "when the life ended; null: censored"),
			{Name: "evict_reason", Kind: table.Text, Null: true, Description: "why the life ended; null: censored"},
			{Name: "censored", Kind: table.Bool, Description: "the life had not ended when watching did"},
			{Name: "ctx", Kind: table.Int32, Description: "context"},
			{Name: "cache", Kind: table.Text, Description: "kind of the cache"},
			{Name: "cells", Kind: table.Int32, Description: "most cells that the life had at a time"},
			{Name: "cell_bytes", Kind: table.Int64, Unit: table.Bytes, Description: "of one cell in this tensor"},
			{Name: "sharers", Kind: table.Int32, Description: "most sequences that one of its cells belonged to"},
			{Name: "moves", Kind: table.Int32, Description: "how often its positions were changed"},
			{Name: "origin", Kind: table.Text, Description: "written, copied or found"},
		},
		Metadata: [][2]string{{table.VersionKey, table.Version}},
	}
}

// batchRows is how many rows are gathered before they are written as one row group.
const batchRows = 1 << 14

// lifeTable writes kv_block_lifecycle.parquet.
type lifeTable struct {
	out    *table.Parquet
	batch  *table.Batch
	offset int64 // of Unix time
}

func newLifeTable(w io.Writer, unixOffset int64) (*lifeTable, error) {
	schema := lifeSchema()
	out, err := table.NewParquet(w, schema)
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", FileName, err)
	}
	return &lifeTable{out: out, batch: table.NewBatch(schema), offset: unixOffset}, nil
}

// append adds what one part of a cache saw of a life.
func (t *lifeTable) append(ctx uint32, c *kvcache.Cache, life *kvcache.Life, part int, touch *kvcache.Touch) error {
	b, of := t.batch, c.Parts[part]
	b.Int(colBlock, int64(life.Block))
	b.Int(colLayer, int64(of.Layer))
	b.Text(colKV, of.Tensor.String())
	if life.Seq >= 0 {
		b.Int(colSeq, int64(life.Seq))
	}
	if life.PosFirst >= 0 {
		b.Int(colPosStart, int64(life.PosFirst))
		b.Int(colPosEnd, int64(life.PosEnd))
	}
	b.Int(colCellStart, int64(life.CellFirst))
	b.Int(colCellEnd, int64(life.CellEnd))
	t.time(colAlloc, life.AllocNS)
	t.time(colFirstWrite, touch.FirstWrite.Write(part))
	t.time(colLastWrite, touch.LastWrite.Write(part))
	t.time(colFirstRead, touch.FirstRead.Read(part))
	t.time(colLastRead, touch.LastRead.Read(part))
	b.Int(colWrites, touch.Writes)
	b.Int(colReads, touch.Reads)
	censored := life.Reason == kvcache.NotEvicted
	if !censored {
		t.time(colEvict, life.EndNS)
		b.Text(colReason, life.Reason.String())
	}
	b.Bool(colCensored, censored)
	b.Int(colCtx, int64(ctx))
	b.Text(colCache, c.Kind.String())
	b.Int(colCells, int64(life.Cells))
	b.Int(colCellBytes, of.CellBytes)
	b.Int(colSharers, int64(life.Sharers))
	b.Int(colMoves, int64(life.Moves))
	b.Text(colOrigin, life.Origin.String())
	if err := b.EndRow(); err != nil {
		return fmt.Errorf("write %s: %w", FileName, err)
	}
	if b.Rows() < batchRows {
		return nil
	}
	return t.flush()
}

// time sets a time, if there is one.
func (t *lifeTable) time(column int, mono int64) {
	if mono != 0 {
		t.batch.Int(column, mono+t.offset)
	}
}

func (t *lifeTable) flush() error {
	err := t.out.Write(t.batch)
	t.batch.Reset()
	if err != nil {
		return fmt.Errorf("write %s: %w", FileName, err)
	}
	return nil
}

// close completes the table.
func (t *lifeTable) close(last *kvcache.Snapshot) error {
	text, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("write %s: %w", FileName, err)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.out.AddMetadata(kvcache.SnapshotKey, string(text)); err != nil {
		return fmt.Errorf("write %s: %w", FileName, err)
	}
	if err := t.out.Close(); err != nil {
		return fmt.Errorf("complete %s: %w", FileName, err)
	}
	return nil
}
