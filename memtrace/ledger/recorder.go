package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/record"
)

// Hot path: per execution one pass over the operands of its graph's ops, and no allocation in steady state.

// Options says how a Recorder works. Table and Map must be given.
type Options struct {
	// Table gets the accesses. It is closed behind the recorder, by who made it.
	Table *record.Table
	// Map says what lies where. It must know of a buffer or a graph before the recorder is told of it.
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

// ErrDesync occurs when the tap reports something of a graph that it did not announce.
var ErrDesync = errors.New("the tap's reports do not fit together")

// maxHeld is how many executions wait for it to be decided whether they are set-up. Beyond it the oldest is written
// without a phase.
const maxHeld = 256

// Recorder is a ggmlhooks.Sink that writes the accesses of graphs. It is for one goroutine.
type Recorder struct {
	ggmlhooks.NoMachine
	o       Options
	out     *record.Writer
	joiner  ggmlhooks.RowJoiner
	joined  []ggmlhooks.Row
	begun   []ggmlhooks.RequestBegin
	plans   map[uint64]*plan
	newest  map[uint32]uint64 // newest graph of each context
	open    map[uint64]*execution
	waiting []event // in order
	free    []*execution
	loaded  map[*memtrace.Region]bool
	filling []uint64 // buffers of weights of which it was not told yet that they were filled
	fills   int      // events that will tell it
	ran     bool     // an execution of the run was written
	ending  bool     // there are no more of them
	told    bool     // an error
	lastNS  int64
	doubts  memtrace.Ledger
	sums    sums
	access  access                    // that is told, used again
	fill    func(column int, v int64) // of one row
	ns      []int64
	sources []int64
	closed  bool
}

// event is what is to be written: an execution, that memory came or went, or that the weights in it were filled.
type event struct {
	x    *execution // nil: memory
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
		o: o, plans: map[uint64]*plan{}, newest: map[uint32]uint64{}, open: map[uint64]*execution{}, loaded: map[*memtrace.Region]bool{},
		doubts: memtrace.Ledger{Mode: ModeRows},
	}
	if o.Window > 0 {
		r.doubts.Mode = ModeWindows
	}
	r.out = o.Table.Writer()
	r.fill = func(column int, v int64) { r.out.Fill(column, v, 1) }
	o.Table.About(r.about)
	return r
}

// Doubts count what was executed, and what the rows do not tell whole.
func (r *Recorder) Doubts() memtrace.Ledger { return r.doubts }

// Rows is how many rows were written.
func (r *Recorder) Rows() int64 { return r.out.Rows() }

// Buffer notes that memory came. What it is for is told later.
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

// Context notes how a context cuts its batches, and when its weights were filled.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	r.joiner.Context(c)
	if c.LoadedNS == 0 {
		return nil
	}
	at := len(r.waiting)
	for at > 0 && r.waiting[at-1].x == nil && r.waiting[at-1].ns > c.LoadedNS {
		at-- // memory that came later: of the context
	}
	r.waiting = slices.Insert(r.waiting, at, event{op: memtrace.OpWrite, ns: c.LoadedNS})
	r.fills++
	return nil
}

// Call notes the program's batch.
func (r *Recorder) Call(c *ggmlhooks.Call) error {
	r.joiner.Call(c)
	return nil
}

// CallEnd ends nothing: micro-batches are framed by themselves.
func (r *Recorder) CallEnd(ggmlhooks.CallEnd) error { return nil }

// SeqChange notes what the program did to sequences.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.joiner.SeqChange(c)
	return nil
}

// Graph works out what a graph does. Of the one before it, of the same context, nothing new will come.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	delete(r.plans, r.newest[g.Ctx])
	r.newest[g.Ctx] = g.ID
	r.plans[g.ID] = newPlan(g, r.o.Map)
	return nil
}

// Exec begins a micro-batch.
func (r *Recorder) Exec(e *ggmlhooks.Exec) error {
	p := r.plans[e.Graph]
	if p == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ErrDesync, e.Number, e.Graph)
	}
	x := r.take()
	x.number, x.ctx, x.plan, x.ns, x.first, x.open = e.Number, e.Ctx, p, e.MonoNS, e.TokenFirst, e.Provisional
	x.tokens, x.pos, x.outputs = append(x.tokens, e.Tokens...), append(x.pos, e.Pos...), append(x.outputs, e.Outputs...)
	x.phase = memtrace.Generation
	if len(e.Tokens) == 0 && p.tokens == 0 {
		x.phase = memtrace.Maintenance
	}
	r.joined, r.begun, _ = r.joiner.Join(r.joined[:0], r.begun[:0], e)
	for i := range r.joined {
		seq := int32(none)
		if s := r.joined[i].Seqs; len(s) > 0 {
			seq = s[0]
		}
		x.seqs = append(x.seqs, seq)
		x.steps = append(x.steps, r.joined[i].Phase)
	}
	x.step = ggmlhooks.OnePhase(r.joined)
	x.only = x.seq(0, len(x.seqs))
	r.open[e.Number] = x
	r.waiting = append(r.waiting, event{x: x})
	return nil
}

func (r *Recorder) take() *execution {
	n := len(r.free)
	if n == 0 {
		return &execution{}
	}
	x := r.free[n-1]
	r.free = r.free[:n-1]
	x.reset()
	return x
}

// Input keeps which cells an execution writes, or may read.
func (r *Recorder) Input(in *ggmlhooks.Input) error {
	x := r.open[in.Exec]
	switch {
	case x == nil:
	case in.Kind == ggmlhooks.InputMask:
		x.mask(in.Leaf, x.plan.streams[in.Leaf], in.Ranges)
	default:
		x.cells.begin(in.Leaf)
		for _, v := range in.Values {
			x.cells.add(v)
		}
	}
	return nil
}

// Times keeps when nodes were computed.
func (r *Recorder) Times(t *ggmlhooks.Times) error {
	if x := r.open[t.Exec]; x != nil {
		x.begin, x.times = t.BeginNS, append(x.times[:0], t.Nodes...)
	}
	return nil
}

// Capture keeps which experts were chosen, and releases the tensor.
func (r *Recorder) Capture(c *ggmlhooks.Capture) error {
	defer c.Release()
	x := r.open[c.Exec]
	if x != nil && c.For&ggmlhooks.ForRouting != 0 && c.Blocks <= 1 && c.Node >= 0 && c.Type == int(gguf.I32) {
		x.chosen(c.Node, c.Data)
	}
	return nil
}

// ExecEnd ends a micro-batch. It is written once it is known not to be set-up, or to be.
func (r *Recorder) ExecEnd(e ggmlhooks.ExecEnd) error {
	x := r.open[e.Number]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	delete(r.open, e.Number)
	x.ended, x.end, x.failed = true, e.MonoNS, e.Status != 0
	if x.begin == 0 {
		x.begin = e.BeginNS
	}
	if x.begin == 0 {
		x.begin = x.ns
	}
	return r.tell(r.settle())
}

// tell notes that an error was told: Close does not tell it again.
func (r *Recorder) tell(err error) error {
	r.told = r.told || err != nil
	return err
}

// Resolve decides about a context's executions up to e.Exec.
func (r *Recorder) Resolve(e ggmlhooks.Resolve) error {
	if e.Discarded {
		r.joiner.Forget(e.Ctx)
	}
	for _, w := range r.waiting {
		if x := w.x; x != nil && x.open && x.ctx == e.Ctx && x.number <= e.Exec {
			x.open = false
			if e.Discarded {
				x.phase = memtrace.Setup
			}
		}
	}
	return r.tell(r.settle())
}

// settle writes what is decided, in order. What memory is for is known when an execution behind its coming is decided.
func (r *Recorder) settle() error {
	ready := 0
	for i, w := range r.waiting {
		if w.x == nil {
			continue
		}
		if full := len(r.waiting)-i > maxHeld; !full && (!w.x.ended || w.x.open) {
			break
		}
		if !w.x.ended { // its end was lost
			w.x.failed = true
			delete(r.open, w.x.number)
		}
		ready = i + 1
	}
	err := r.write(ready)
	if err == nil && ready > 0 {
		err = r.Tick(r.lastNS)
	}
	return err
}

// write writes the first n of what waits.
func (r *Recorder) write(n int) error {
	for i := range n {
		w := &r.waiting[i]
		var err error
		if w.x != nil {
			err = r.execution(w.x)
			r.free = append(r.free, w.x)
			w.x = nil
		} else if w.op == memtrace.OpWrite {
			r.fills--
			err = r.filled(w.ns)
		} else {
			err = r.buffer(w)
		}
		if err != nil {
			return err
		}
	}
	r.waiting = slices.Delete(r.waiting, 0, n)
	return nil
}

// Tick tells the time, CLOCK_MONOTONIC: what was written long enough ago is made readable, whatever comes.
func (r *Recorder) Tick(ns int64) error { return r.tell(r.out.Tick(ns)) }

// Close writes what waits, as what it seems to be. The table is left open. It may be called twice. An error that
// was told before is not told again.
func (r *Recorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	for i := range r.waiting {
		if x := r.waiting[i].x; x != nil && !x.ended {
			x.failed = true // the model's process has ended before it
		} else if x != nil {
			x.open = false
		}
	}
	err := errors.Join(r.finish(), r.out.Close())
	if r.told {
		return nil
	}
	return err
}

// finish writes what waits. Behind the last execution the run is torn down.
func (r *Recorder) finish() error {
	last := 0
	for i := range r.waiting {
		if r.waiting[i].x != nil {
			last = i + 1
		}
	}
	if err := r.write(last); err != nil {
		return err
	}
	r.ending = r.ran
	if err := r.write(len(r.waiting)); err != nil {
		return err
	}
	return r.flush()
}
