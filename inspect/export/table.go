package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/table"
)

// The columns of a table of tensors.
const (
	columnCtx = iota
	columnSeq
	columnPos
	columnTokenIndex
	columnTokenID
	columnRequest
	columnPhase
	columnExec
	columnLayer
	columnComponent
	columnName
	columnDType
	columnShape
	columnSampleSeed
	columnSampleTotal
	columnValues
)

var tensorColumns = []table.Column{
	{Name: "ctx", Kind: table.Uint32, Description: "context"},
	{Name: "seq_id", Kind: table.Int32, Null: true, Description: "sequence; null: unknown, or several"},
	{Name: "pos", Kind: table.Int32, Null: true, Description: "position in the sequence"},
	{Name: "token_index", Kind: table.Int64, Null: true,
		Description: "number of the token in the run, as in activations_tokens.json"},
	{Name: "token_id", Kind: table.Int32, Null: true, Description: "id in the vocabulary"},
	{Name: "request", Kind: table.Int32, Null: true, Description: "request that the token belongs to"},
	{Name: "phase", Kind: table.Text, Description: "prefill or decode"},
	{Name: "exec", Kind: table.Uint64, Description: "number of the micro-batch"},
	{Name: "layer", Kind: table.Int32, Null: true, Description: "layer; null: none"},
	{Name: "component", Kind: table.Text, Description: "attention, mlp, ssm, residual, input or output"},
	{Name: "name", Kind: table.Text, Description: "tensor"},
	{Name: "dtype", Kind: table.Text, Description: "type that the values were stored in"},
	{Name: "shape", Kind: table.Int32List, Description: "elements of a row by dimension, C order"},
	{Name: "sample_seed", Kind: table.Uint64, Null: true, Description: "seed of the sample; null: no sample"},
	{Name: "sample_total", Kind: table.Int64, Null: true, Description: "elements that the sample was taken from"},
	{Name: "values", Kind: table.Float32List, Description: "the row's values"},
}

// rowGroupBytes is about how much one row group, or record batch, takes in memory.
const rowGroupBytes = 32 << 20

// tableWriter is a file of either form.
type tableWriter interface {
	Write(*table.Batch) error
	Close() error
}

// table writes one file with a row per tensor and token.
func (e tableExport) table() error {
	about, err := json.Marshal(e.provenance())
	if err != nil {
		return err
	}
	schema := table.Schema{Columns: tensorColumns, Metadata: [][2]string{{"llamatap", string(about)}}}
	file, err := e.draft.Create(e.base())
	if err != nil {
		return err
	}
	defer file.Close()
	buffered := bufio.NewWriterSize(file, 1<<20)
	out, err := e.newTable(buffered, schema)
	if err != nil {
		return err
	}
	if err := e.tableRows(out, table.NewBatch(schema)); err != nil {
		return err
	}
	if err := errors.Join(out.Close(), buffered.Flush(), file.Close()); err != nil {
		return err
	}
	e.measure()
	return e.draft.publishFiles(e.base())
}

func (e tableExport) newTable(w io.Writer, schema table.Schema) (tableWriter, error) {
	if e.o.Form == Arrow {
		return table.NewArrow(w, schema)
	}
	return table.NewParquet(w, schema)
}

// tableRows writes all rows.
func (e tableExport) tableRows(out tableWriter, batch *table.Batch) error {
	var data, turned []byte
	var values []float32
	seen := map[tensorKey]bool{}
	err := e.eachPiece(func(p *piece) (err error) {
		if data, err = e.read(p, data); err != nil {
			return err
		}
		plain, err := e.plain(p, data)
		if err != nil {
			return err
		}
		seen[tensorKey{p.Ctx, p.Name}] = true
		for i := range p.rows {
			turned = p.appendRow(turned[:0], plain, p.rows[i].at)
			if values, err = e.appendFloats(values[:0], turned, p); err != nil {
				return err
			}
			if err := tableRow(batch, p, &p.rows[i], values); err != nil {
				return err
			}
			e.result.Rows++
			if batch.Bytes() >= rowGroupBytes {
				if err := out.Write(batch); err != nil {
					return err
				}
				batch.Reset()
			}
		}
		return nil
	})
	e.result.Tensors = len(seen)
	if err == nil && e.result.Rows == 0 {
		err = e.emptySelectionError()
	}
	if err != nil {
		return err
	}
	return out.Write(batch)
}

// tableRow adds one row. What is not known is null.
func tableRow(b *table.Batch, p *piece, r *row, values []float32) error {
	known := func(column int, v int64) {
		if v != unknown {
			b.Int(column, v)
		}
	}
	b.Int(columnCtx, int64(p.Ctx))
	known(columnSeq, int64(r.seq()))
	known(columnPos, int64(r.pos))
	known(columnTokenIndex, r.index)
	known(columnTokenID, int64(r.id))
	known(columnRequest, int64(r.request))
	b.Text(columnPhase, r.phase.String())
	b.Int(columnExec, int64(p.Exec))
	if p.Layer != label.NoLayer {
		b.Int(columnLayer, int64(p.Layer))
	}
	b.Text(columnComponent, p.Component.String())
	b.Text(columnName, p.Name)
	b.Text(columnDType, p.DType.String())
	b.Ints(columnShape, p.Shape)
	if p.SampleTotal > 0 {
		b.Int(columnSampleSeed, int64(p.SampleSeed))
		b.Int(columnSampleTotal, p.SampleTotal)
	}
	b.Floats(columnValues, values)
	return b.EndRow()
}
