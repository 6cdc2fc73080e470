package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// TableOptions says how a Table is written. For what is zero stands what is said there.
type TableOptions struct {
	// Folder is where the parts go. It must be given.
	Folder table.Folder
	// Memory bounds what the rows take that wait, and what packs them; 64 MiB. Below 4 MiB it is taken for that.
	Memory int64
	// Foreign is set where times are not Unix time, as those of files that perf recorded: they are durations since
	// their clock's zero.
	Foreign bool
	// Parts bounds them; as store/table does, but for what Memory demands.
	Parts table.PartOptions
}

// Table is the table of accesses of a run. Its methods may be called from several goroutines.
type Table struct {
	o         TableOptions
	work      chan job
	done      chan struct{}
	close     sync.Once
	err       atomic.Pointer[error] // the first
	kept      atomic.Int64
	lost      atomic.Int64
	bytes     atomic.Int64
	unwritten atomic.Int64
	mu        sync.Mutex
	about     []func() (key, value string)
}

// job is a batch to be packed, which is then given back.
type job struct {
	batch *batch
	back  chan<- *batch
}

// batch is a table's with the texts of its columns that have codes.
type batch struct {
	*table.Batch
	known []int // by column
}

// least is the least memory that a table is written with.
const least = 4 << 20

// NewTable makes a table of nothing: a file is made with the first rows.
func NewTable(o TableOptions) *Table {
	if o.Memory == 0 {
		o.Memory = 64 << 20
	}
	o.Memory = max(o.Memory, least)
	if most := o.Memory / 4; o.Parts.GroupBytes <= 0 || o.Parts.GroupBytes > most {
		o.Parts.GroupBytes = most
	}
	o.Parts.PageBytes = int(min(max(o.Memory/512, 16<<10), 256<<10))
	t := &Table{o: o, work: make(chan job), done: make(chan struct{})}
	go t.pack()
	return t
}

// Schema is the table's columns. Places and times repeat in a ledger, and lie near their neighbours in samples: the
// writer finds out which it is.
func Schema() table.Schema {
	s := table.Schema{Metadata: [][2]string{{table.VersionKey, table.Version}}}
	kinds := [...]table.Kind{memtrace.ColumnInt32: table.Int32, memtrace.ColumnInt64: table.Int64,
		memtrace.ColumnUint64: table.Uint64, memtrace.ColumnText: table.Text}
	for _, c := range memtrace.TraceColumns() {
		s.Columns = append(s.Columns, table.Column{Name: c.Name, Kind: kinds[c.Kind], Null: true,
			Unit: table.Unit(c.Unit), Description: c.Description})
	}
	return s
}

// About says what stands under a key in the metadata of the table's last part. It is asked for when the table is
// closed.
func (t *Table) About(f func() (key, value string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.about = append(t.about, f)
}

// Rows is how many rows are on the disk in parts that are complete, and how many were lost.
func (t *Table) Rows() (kept, lost int64) { return t.kept.Load(), t.lost.Load() }

// Bytes is how large the parts are whose rows are safe.
func (t *Table) Bytes() int64 { return t.bytes.Load() }

// Unwritten is how many rows were given that are in no file yet.
func (t *Table) Unwritten() int64 { return t.unwritten.Load() }

// Err is the first error of the table's files, nil if there was none. Nothing is written after it.
func (t *Table) Err() error {
	if err := t.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (t *Table) fail(err error) {
	if err != nil {
		t.err.CompareAndSwap(nil, &err)
	}
}

// Close completes the table, when its writers have been closed. It may be called twice. It returns the first error
// that there was.
func (t *Table) Close() error {
	t.close.Do(func() {
		close(t.work)
		<-t.done
	})
	return t.Err()
}

// settleEvery is how often it is looked whether a part is old enough, while no rows come.
const settleEvery = time.Second

// pack packs batches until there are no more.
func (t *Table) pack() {
	defer close(t.done)
	var parts *table.Parts
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case j, ok := <-t.work:
			if !ok {
				t.finish(parts)
				return
			}
			t.unwritten.Add(int64(j.batch.Rows()))
			parts = t.append(parts, j.batch)
			j.batch.Reset()
			j.back <- j.batch
		case <-tick.C:
			if parts != nil && t.Err() == nil {
				t.fail(parts.Settle())
			}
		}
		if parts != nil {
			kept, lost := parts.Rows()
			t.kept.Store(kept)
			t.lost.Store(lost)
			t.bytes.Store(parts.Bytes())
			t.unwritten.Store(parts.Unwritten())
		}
	}
}

// append appends a batch. After an error there is nothing to append to.
func (t *Table) append(parts *table.Parts, b *batch) *table.Parts {
	if parts == nil && t.Err() == nil {
		schema := Schema()
		if t.o.Foreign {
			schema.Columns[memtrace.TraceTime].Unit = table.NS
		}
		var err error
		if parts, err = table.NewParts(t.o.Folder, rundir.TraceName, schema, t.o.Parts); err != nil {
			t.fail(fmt.Errorf("begin %s: %w", rundir.TraceName, err))
		}
	}
	if parts != nil && t.Err() == nil {
		t.fail(parts.Append(b.Batch))
	}
	return parts
}

// finish completes the table.
func (t *Table) finish(parts *table.Parts) {
	if parts == nil {
		return
	}
	t.mu.Lock()
	for _, about := range t.about {
		parts.AddMetadata(about())
	}
	t.mu.Unlock()
	t.fail(parts.Close())
	kept, lost := parts.Rows()
	t.kept.Store(kept)
	t.lost.Store(lost)
	t.bytes.Store(parts.Bytes())
	t.unwritten.Store(0)
}

// ErrClosed occurs when rows come after a writer's end.
var ErrClosed = errors.New("the table of accesses is complete")
