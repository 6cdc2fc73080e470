package ledger

import (
	"errors"
	"slices"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/record"
)

// Hot path: per execution one pass over the operands of its graph's ops, and no allocation in steady state.

// Options says how a Recorder works. Table and Map must be given.
type Options struct {
	// Table gets the accesses. It is closed behind the recorder, by who made it.
	Table *record.Table
	// Map says what lies where. It must know of a buffer or a graph before the recorder hears of it.
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
	o       Options
	out     *record.Writer
	plans   ggmlhooks.Plans[*plan]
	x       execution // that is written, used again
	waiting []event   // of memory, in order: what it is for is known when an execution behind its coming is decided
	loaded  map[*memtrace.Region]bool
	filling []uint64 // buffers of weights that are not written as filled yet
	fills   int      // events that will say so
	ran     bool     // an execution of the run was written
	ending  bool     // there are no more of them
	failed  bool     // an error was returned
	lastNS  int64
	doubts  memtrace.Ledger
	sums    sums
	access  access                    // that is written, used again
	fill    func(column int, v int64) // of one row
	ns      []int64
	sources []int64
	closed  bool
}

// event is that memory came or went, or that the weights in it were filled.
type event struct {
	op   memtrace.AccessOp
	id   uint64
	ns   int64
	size uint64
}

// NewRecorder makes a recorder.
func NewRecorder(o Options) *Recorder {
	if o.Block <= 0 {
		o.Block = 32
	}
	r := &Recorder{
		o: o, loaded: map[*memtrace.Region]bool{}, doubts: memtrace.Ledger{Mode: ModeRows},
	}
	if o.Window > 0 {
		r.doubts.Mode = ModeWindows
	}
	r.out = o.Table.Writer()
	r.fill = func(column int, v int64) { r.out.Fill(column, v, 1) }
	o.Table.About(r.about)
	return r
}

// Doubts count what was executed, and what the rows lack.
func (r *Recorder) Doubts() memtrace.Ledger { return r.doubts }

// Rows is how many rows were written.
func (r *Recorder) Rows() int64 { return r.out.Rows() }

// Buffer notes that memory came. What it is for is reported later.
func (r *Recorder) Buffer(b *ggmlhooks.Buffer) error {
	if b.Known || b.Size == 0 {
		return nil
	}
	r.waiting = append(r.waiting, event{op: memtrace.OpAlloc, id: b.ID, ns: b.MonoNS, size: b.Size})
	return nil
}

// BufferEnd notes that memory went.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	b := r.o.Map.Buffer(e.ID)
	if b == nil {
		return nil
	}
	r.waiting = append(r.waiting, event{op: memtrace.OpFree, id: e.ID, ns: e.MonoNS, size: b.Size})
	return nil
}

// Context notes when the weights of its model were filled.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	if c.LoadedNS == 0 {
		return nil
	}
	at := len(r.waiting)
	for at > 0 && r.waiting[at-1].ns > c.LoadedNS {
		at-- // memory that came later: of the context
	}
	r.waiting = slices.Insert(r.waiting, at, event{op: memtrace.OpWrite, ns: c.LoadedNS})
	r.fills++
	return nil
}

// Graph works out what a graph does.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.plans.Put(g, newPlan(g, r.o.Map))
	return nil
}

// Record writes what happened to memory before an execution, and then its accesses.
func (r *Recorder) Record(x *ggmlhooks.Execution) error {
	before := slices.IndexFunc(r.waiting, func(e event) bool { return e.ns > x.MonoNS })
	if before < 0 {
		before = len(r.waiting)
	}
	err := r.write(before)
	if err == nil {
		r.x.fill(x, r.plans.Of(x))
		err = r.execution(&r.x)
	}
	if err == nil {
		err = r.out.Tick(r.lastNS)
	}
	return r.note(err)
}

// note notes that an error was returned: Close does not return it again.
func (r *Recorder) note(err error) error {
	r.failed = r.failed || err != nil
	return err
}

// write writes the first n events of memory.
func (r *Recorder) write(n int) error {
	for i := range n {
		e := &r.waiting[i]
		var err error
		if e.op == memtrace.OpWrite {
			r.fills--
			err = r.filled(e.ns)
		} else {
			err = r.buffer(e)
		}
		if err != nil {
			return err
		}
	}
	r.waiting = slices.Delete(r.waiting, 0, n)
	return nil
}

// Tick passes the time, CLOCK_MONOTONIC: what was written long enough ago is made readable, whatever comes.
func (r *Recorder) Tick(ns int64) error { return r.note(r.out.Tick(ns)) }

// Close writes what happened to memory behind the last execution: then the run is torn down. The table is left open.
// It may be called twice. An error that was returned before is not returned again.
func (r *Recorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed, r.ending = true, r.ran
	err := r.write(len(r.waiting))
	if err == nil {
		err = r.flush()
	}
	if err = errors.Join(err, r.out.Close()); r.failed {
		return nil
	}
	return err
}
