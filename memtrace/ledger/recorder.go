package ledger

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// Hot path: per execution one pass over the operands of its graph's ops, and no allocation in steady state.

// Options says how a Recorder works. Table and Map must be given.
type Options struct {
	// Table gets the accesses. Who made it closes it after the recorder.
	Table *Table
	// Map says what lies where. It must have taken in a buffer or a graph before the recorder does.
	Map *memtrace.RegionMap
	// Window, if above 0, is the length of windows in which accesses are summed up by region; 0: every access is a row.
	Window time.Duration
	// UnixOffset is what must be added to a monotonic time to make it a Unix time, in nanoseconds.
	UnixOffset int64
	// Block is how many cells a block of a cache of keys and values has; 0: 32.
	Block int64
}

// The modes, as files name them.
const (
	ModeRows    = "rows"
	ModeWindows = "windows"
)

// Recorder writes the accesses of graphs. An execution that is undecided is written without a phase. It is for one
// goroutine.
type Recorder struct {
	out       *output
	m         *memtrace.RegionMap
	plans     ggmlhooks.Plans[*plan]
	x         execution // that is written, used again
	lifetimes lifetimes
	copies    copies
	rows      rows
	windows   windows
	failed    bool // an error was returned
	doubts    memtrace.Ledger
	closed    bool
}

// NewRecorder makes a recorder.
func NewRecorder(o Options) *Recorder {
	if o.Block <= 0 {
		o.Block = 32
	}
	out := &output{Writer: o.Table.Writer(), offset: o.UnixOffset}
	out.fill = func(column int, v int64) { out.Fill(column, v, 1) }
	r := &Recorder{out: out, m: o.Map, doubts: memtrace.Ledger{Mode: ModeRows}}
	if o.Window > 0 {
		r.doubts.Mode = ModeWindows
	}
	v := visitor{block: o.Block, doubts: &r.doubts}
	r.lifetimes = lifetimes{out: out, windows: &r.windows, m: o.Map, loaded: map[*memtrace.Region]bool{}}
	r.copies = copies{m: o.Map}
	r.rows = rows{out: out, visitor: v}
	r.rows.emit = r.rows.row
	r.windows = windows{out: out, m: o.Map, length: int64(o.Window), visitor: v, of: map[sumKey]*sum{}}
	r.windows.emit = r.windows.add
	o.Table.About(r.about)
	return r
}

// Doubts count what was executed, and what the rows lack.
func (r *Recorder) Doubts() memtrace.Ledger { return r.doubts }

// Rows is how many rows were written.
func (r *Recorder) Rows() int64 { return r.out.Rows() }

// Buffer notes that memory came. What it is for is reported later.
func (r *Recorder) Buffer(b *ggmlhooks.Buffer) error {
	if !b.Known && b.Size != 0 {
		r.lifetimes.note(event{op: memtrace.OpAlloc, id: b.ID, ns: b.MonoNS, size: b.Size})
	}
	return nil
}

// BufferEnd notes that memory went.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	if b := r.m.Buffer(e.ID); b != nil {
		r.lifetimes.note(event{op: memtrace.OpFree, id: e.ID, ns: e.MonoNS, size: b.Size})
	}
	return nil
}

// Context notes when the weights of its model were filled.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	if c.LoadedNS != 0 {
		r.lifetimes.noteFilled(c.LoadedNS)
	}
	return nil
}

// Moved notes what was copied to a cache of experts.
func (r *Recorder) Moved(m *ggmlhooks.Moved) error {
	r.copies.note(m)
	return nil
}

// Graph works out what a graph does.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.plans.Put(g, newPlan(g, r.m))
	return nil
}

// Record writes what happened to memory before an execution, and then its accesses.
func (r *Recorder) Record(x *ggmlhooks.Execution) error {
	err := r.lifetimes.until(x.MonoNS)
	if err == nil {
		r.x.fill(x, r.plans.Of(x))
		err = r.execution(&r.x)
	}
	if err == nil {
		err = r.out.Tick(r.out.newest)
	}
	return r.note(err)
}

// execution writes the accesses of an execution, or adds them to a window.
func (r *Recorder) execution(x *execution) error {
	r.doubts.Executions++
	r.out.newest = max(r.out.newest, x.end)
	if x.failed {
		r.doubts.Failed++
		return r.copies.visit(x, nil)
	}
	if x.open {
		r.doubts.Undecided++
	}
	r.doubts.Unplaced += x.plan.unplaced
	if !x.plan.loaded {
		x.plan.loaded = true
		for i := range x.plan.items {
			if err := r.lifetimes.load(x.plan.items[i].region, none); err != nil {
				return err
			}
		}
	}
	if x.phase == memtrace.Generation && !x.open {
		r.lifetimes.now = memtrace.Generation
	}
	if r.windows.length > 0 {
		return r.windows.execution(x, &r.copies)
	}
	if err := r.copies.visit(x, r.rows.row); err != nil {
		return err
	}
	return r.rows.execution(x)
}

// note notes that an error was returned: Close does not return it again.
func (r *Recorder) note(err error) error {
	r.failed = r.failed || err != nil
	return err
}

// Tick passes the time, CLOCK_MONOTONIC: what was written long enough ago is made readable, whatever comes.
func (r *Recorder) Tick(ns int64) error { return r.note(r.out.Tick(ns)) }

// Close writes what happened to memory after the last execution: then the run is torn down. The table is left open.
// It may be called twice. An error that was returned before is not returned again.
func (r *Recorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.lifetimes.now == memtrace.Generation {
		r.lifetimes.now = memtrace.Teardown
	}
	r.doubts.Unplaced += int64(len(r.copies.waiting))
	err := r.lifetimes.until(memtrace.Forever)
	if err == nil {
		err = r.windows.flush()
	}
	if err = errors.Join(err, r.out.Close()); r.failed {
		return nil
	}
	return err
}

// about is what the table's metadata says of the ledger.
func (r *Recorder) about() (key, value string) {
	text, _ := json.Marshal(r.doubts) // of numbers and a word
	return memtrace.LedgerKey, string(text)
}
