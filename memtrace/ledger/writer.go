package ledger

import (
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// Hot path: rows are gathered by columns, many at a time, with no allocation in steady state.

const (
	rowBytes  = 300     // about what a row takes while it waits
	batchRows = 1 << 15 // most that are packed at a time
	waitNS    = int64(5 * time.Second)
)

// Writer gathers rows of one recorder. It is for one goroutine. Columns are numbered as in package memtrace.
type Writer struct {
	t     *Table
	batch *batch // that is filled
	free  chan *batch
	most  int
	texts []texts // by column
	begun int64   // when the first row of the batch came, 0 = unknown
	rows  int64
	ended bool
}

// texts are those of a column that have codes, in their order.
type texts struct {
	codes map[string]int64
	list  []string
}

// Writer makes a writer of rows.
func (t *Table) Writer() *Writer {
	n := len(memtrace.TraceColumns())
	w := &Writer{t: t, free: make(chan *batch, 2), texts: make([]texts, n)}
	w.most = int(min(max(t.o.Memory/8/rowBytes, 256), batchRows))
	for range 2 {
		w.free <- &batch{table.NewBatch(Schema()), make([]int, n)}
	}
	w.nextBatch()
	return w
}

// nextBatch takes an empty batch, and adds the texts that have codes to its dictionary.
func (w *Writer) nextBatch() {
	w.batch = <-w.free
	for column := range w.texts {
		for _, text := range w.texts[column].list[w.batch.known[column]:] {
			w.batch.Code(column, text)
			w.batch.known[column]++
		}
	}
}

// Code is a number for a text of a column, which stands for it in Fill and Extend, as long as the writer lives. It
// is for texts that are few.
func (w *Writer) Code(column int, text string) int64 {
	t := &w.texts[column]
	code, ok := t.codes[text]
	if !ok {
		if t.codes == nil {
			t.codes = map[string]int64{}
		}
		code = w.batch.Code(column, text)
		t.codes[text], t.list = code, append(t.list, text)
		w.batch.known[column]++
	}
	return code
}

// Int sets a number of the row.
func (w *Writer) Int(column int, v int64) { w.batch.Int(column, v) }

// Text sets a text of the row. One that is empty is null.
func (w *Writer) Text(column int, v string) {
	if v != "" {
		w.batch.Fill(column, w.Code(column, v), 1)
	}
}

// EndRow ends the row; columns that were not set are null. An error is that of the table; nothing is written after one.
func (w *Writer) EndRow() error { return w.EndRows(1) }

// Fill sets a number, or the code of a text, of n rows.
func (w *Writer) Fill(column int, v int64, n int) { w.batch.Fill(column, v, n) }

// Extend sets numbers, or codes of texts, of as many rows, which are copied.
func (w *Writer) Extend(column int, v []int64) { w.batch.Extend(column, v, nil) }

// ExtendSome is Extend where those that are not valid are null.
func (w *Writer) ExtendSome(column int, v []int64, valid []bool) {
	w.batch.Extend(column, v, valid)
}

// EndRows ends n rows; columns that were not set are null in all of them.
func (w *Writer) EndRows(n int) error {
	if err := w.t.Err(); err != nil {
		w.batch.Reset()
		return err
	}
	if w.ended {
		return ErrClosed
	}
	if err := w.batch.EndRows(n); err != nil {
		return err
	}
	w.rows += int64(n)
	if w.batch.Rows() >= w.most {
		w.packBatch()
	}
	return nil
}

// Rows is how many rows were given.
func (w *Writer) Rows() int64 { return w.rows }

// packBatch passes the batch to the packer, and takes an empty one.
func (w *Writer) packBatch() {
	w.t.work <- job{w.batch, w.free}
	w.nextBatch()
	w.begun = 0
}

// Tick passes the current time, on any one clock of nanoseconds: rows that have waited for some seconds are packed. The
// error is the table's.
func (w *Writer) Tick(ns int64) error {
	switch {
	case w.ended || w.batch.Rows() == 0:
	case w.begun == 0:
		w.begun = ns
	case ns-w.begun >= waitNS:
		w.packBatch()
	}
	return w.t.Err()
}

// Close gives the rows that are left to the table. It may be called twice. The error is the table's.
func (w *Writer) Close() error {
	if !w.ended && w.batch.Rows() > 0 {
		w.packBatch()
	}
	w.ended = true
	return w.t.Err()
}
