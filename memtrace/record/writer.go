package record

import (
	"fmt"
	"io"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// Hot path: per row one call for each column that is not null, and no allocation in steady state; rows are packed by a goroutine of its own.

// Options says how a Writer works. For what is zero stands what is said there.
type Options struct {
	// Create makes the file of the next part of the run's table, of whichever recorder. It must be given, and may be called from another goroutine.
	Create func() (io.WriteCloser, error)
	// About, if not nil, are texts about what was recorded up to now, for the metadata of a part that is completed.
	About func() [][2]string
	// BatchRows is how many rows are gathered before they are packed; 32768. Twice as many are in memory.
	BatchRows int
	// PartRows is how many rows a part has at most, up to the rest of a batch; 4194304.
	PartRows int64
	// FirstPart is how old the first part becomes, and LastPart the most that any does; two seconds, five minutes.
	FirstPart, LastPart time.Duration
}

// PartName is the name of a part of the table, counted from 0.
func PartName(n int) string {
	if n == 0 {
		return memtrace.TraceName
	}
	return fmt.Sprintf("trace.%03d.parquet", n)
}

// RowBytes is about how much memory a row takes while it waits to be packed.
const RowBytes = 400

const (
	batchRows = 1 << 15
	partRows  = 1 << 22
	firstPart = 2 * time.Second
	lastPart  = 5 * time.Minute
)

func (o *Options) defaults() {
	if o.BatchRows <= 0 {
		o.BatchRows = batchRows
	}
	if o.PartRows <= 0 {
		o.PartRows = partRows
	}
	if o.FirstPart <= 0 {
		o.FirstPart = firstPart
	}
	if o.LastPart <= 0 {
		o.LastPart = lastPart
	}
}

// Writer writes rows of the table of accesses. It is for one goroutine.
type Writer struct {
	o      Options
	batch  *table.Batch // that is filled
	rows   int64
	parts  int64 // complete, or about to be
	inPart int64 // rows of the part
	begun  int64 // when its first row came, 0 = it has none
	age    time.Duration
	work   chan job
	free   chan *table.Batch
	failed chan error // the first, once
	err    error
	ended  bool
	done   chan struct{}
}

// job is what the packing goroutine does next.
type job struct {
	batch *table.Batch // nil: nothing to write
	last  bool         // the part is complete with it
	about [][2]string
}

// NewWriter makes a writer. No file is made before there is a row for it.
func NewWriter(o Options) *Writer {
	o.defaults()
	w := &Writer{o: o, age: o.FirstPart, work: make(chan job), free: make(chan *table.Batch, 2), failed: make(chan error, 1), done: make(chan struct{})}
	w.batch = table.NewBatch(Schema())
	w.free <- table.NewBatch(Schema())
	go w.pack()
	return w
}

// Schema is the table's columns.
func Schema() table.Schema {
	s := table.Schema{Metadata: [][2]string{{memtrace.VersionKey, memtrace.Version}}}
	kinds := [...]table.Kind{memtrace.ColumnInt32: table.Int32, memtrace.ColumnInt64: table.Int64, memtrace.ColumnUint64: table.Uint64, memtrace.ColumnText: table.Text}
	for _, c := range memtrace.TraceColumns() {
		s.Columns = append(s.Columns, table.Column{Name: c.Name, Kind: kinds[c.Kind], Null: true})
	}
	return s
}

// Int sets a number of the row, by its column.
func (w *Writer) Int(column int, v int64) { w.batch.Int(column, v) }

// Text sets a text of the row. One that is empty is null.
func (w *Writer) Text(column int, v string) {
	if v != "" {
		w.batch.Text(column, v)
	}
}

// EndRow ends the row. An error is that of the file, of this row or of one before it; nothing is written any more after one.
func (w *Writer) EndRow() error {
	if w.err != nil {
		w.batch.Reset()
		return w.err
	}
	if err := w.batch.EndRow(); err != nil {
		return err
	}
	w.rows++
	w.inPart++
	if w.batch.Rows() >= w.o.BatchRows {
		return w.hand(w.inPart >= w.o.PartRows)
	}
	return nil
}

// Rows is how many rows were written, and Parts how many parts are complete.
func (w *Writer) Rows() int64 { return w.rows }

// Parts is how many parts are complete, or about to be.
func (w *Writer) Parts() int64 { return w.parts }

// Tick tells the time, on any one clock: a part that is old enough is completed.
func (w *Writer) Tick(ns int64) error {
	switch {
	case w.fails() != nil:
		return w.err
	case w.inPart == 0:
		return nil
	case w.begun == 0:
		w.begun = ns
		return nil
	case ns-w.begun < int64(w.age):
		return nil
	}
	return w.hand(true)
}

// fails is the first error, if there was one.
func (w *Writer) fails() error {
	select {
	case err := <-w.failed:
		w.err = err
	default:
	}
	return w.err
}

// hand gives the batch to be packed, and takes an empty one.
func (w *Writer) hand(last bool) error {
	if w.fails() != nil {
		return w.err
	}
	j := job{batch: w.batch, last: last}
	if last && w.o.About != nil {
		j.about = w.o.About()
	}
	w.work <- j
	w.batch = <-w.free
	if last {
		w.inPart, w.begun = 0, 0
		w.parts++
		w.age = min(2*w.age, w.o.LastPart)
	}
	return nil
}

// Close writes what is left, and completes the last part. It may be called twice.
func (w *Writer) Close() error {
	if w.ended {
		return w.err
	}
	w.ended = true
	if w.inPart > 0 {
		w.hand(true)
	}
	close(w.work)
	<-w.done
	return w.fails()
}

// pack writes batches until there are no more. After an error it only gives them back.
func (w *Writer) pack() {
	defer close(w.done)
	var p *part
	failed := false
	for j := range w.work {
		if !failed {
			var err error
			if p, err = w.write(p, j); err != nil {
				failed = true
				w.failed <- fmt.Errorf("write %s: %w", memtrace.TraceName, err)
				p.drop()
				p = nil
			}
		}
		j.batch.Reset()
		w.free <- j.batch
	}
	p.drop()
}

// write writes a batch into a part, a new one if p is nil, and returns the part if it is not complete.
func (w *Writer) write(p *part, j job) (*part, error) {
	if p == nil {
		var err error
		if p, err = begin(w.o.Create); err != nil {
			return nil, err
		}
	}
	err := p.out.Write(j.batch)
	for _, m := range j.about {
		if err == nil {
			err = p.out.AddMetadata(m[0], m[1])
		}
	}
	if err != nil || !j.last {
		return p, err
	}
	return nil, p.close()
}

// part is a file that is being written.
type part struct {
	file io.WriteCloser
	out  *table.Parquet
}

func begin(create func() (io.WriteCloser, error)) (*part, error) {
	file, err := create()
	if err != nil {
		return nil, err
	}
	out, err := table.NewParquet(file, Schema())
	if err != nil {
		file.Close()
		return nil, err
	}
	return &part{file, out}, nil
}

// close completes the part.
func (p *part) close() error {
	err := p.out.Close()
	if closed := p.file.Close(); err == nil {
		err = closed
	}
	return err
}

// drop ends a part that is not complete, and is no table. A file whose write failed does not get its name.
func (p *part) drop() {
	if p != nil {
		p.file.Close()
	}
}
