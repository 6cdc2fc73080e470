package track

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// Hot path: per execution and cache one pass over the blocks that its tokens may read and the cells that they
// write, and at most three allocations. Nothing is written to the table until lives end.

// Options says how a Recorder works.
type Options struct {
	// Out gets kv_block_lifecycle.parquet; nil: only events and gauges. It is not closed.
	Out io.Writer
	// Block is how many cells a block has; 0: kvcache.DefaultBlock, 1: every cell is followed alone.
	Block int
	// UnixOffset is what must be added to a monotonic time to make it a Unix time, in nanoseconds.
	UnixOffset int64
	// Operation, if not nil, is called for what happens to cells, in order, with what it may not keep. What turns
	// out to be set-up is not reported, so that the first operations of a context may come late. An error of it is an
	// error of the recorder.
	Operation func(*kvcache.Operation) error
}

// Recorder follows caches as they change. Its methods may be called by one goroutine, Snapshot by any.
type Recorder struct {
	mu     sync.Mutex
	o      Options
	table  *lifeTable
	ctxs   map[uint32]*context
	now    execution // used again
	total  totals
	freed  []kvcache.Gauge
	err    error // the first that a life's end brought
	layers []kvcache.LayerBytes
	closed bool
	last   kvcache.Snapshot // once it is closed: how the caches were used
}

// totals are counted over all contexts.
type totals struct {
	reuse          kvcache.Reuse
	lifetime, idle kvcache.Histogram
	doubts         kvcache.Doubts
	lastNS         int64 // of the last report
}

// described is a graph with what it does to caches.
type described struct {
	*plan
	works []*work // made when it is first executed
}

// context is what is known of a llama_context.
type context struct {
	number   uint32
	caches   []*tracked
	memory   kvcache.Memory
	requests map[int32]*request
	touched  map[int32]int64 // when each sequence was computed with last
	graph    *described      // newest
	unseen   bool            // a state was loaded while there were no caches
	lastNS   int64
	held     held
}

// request is what the prompt of a sequence's request found and took.
type request struct {
	reused, needed int64
	unknown        bool
}

// execution is one micro-batch.
type execution struct {
	*ggmlhooks.Execution
	ctx     *context
	g       *described
	rows    []kvcache.Row           // its tokens, without cells yet
	bitmaps map[int]*kvcache.Bitmap // by stream, used again
	streams []int                   // of which the bitmaps hold something now
	placed  []kvcache.Row           // used again
}

// cells are those that a leaf says are written, or read states.
func (x *execution) cells(leaf int) (cells []int64) {
	for i := range x.Inputs {
		switch in := &x.Inputs[i]; {
		case in.Leaf != leaf || in.Kind == ggmlhooks.InputMask:
		case cells == nil:
			cells = in.Values
		default:
			cells = append(cells[:len(cells):len(cells)], in.Values...)
		}
	}
	return cells
}

// ranges are those of a mask.
func (x *execution) ranges(leaf int) (ranges []ggmlhooks.CellRange) {
	for i := range x.Inputs {
		switch in := &x.Inputs[i]; {
		case in.Leaf != leaf || in.Kind != ggmlhooks.InputMask:
		case ranges == nil:
			ranges = in.Ranges
		default:
			ranges = append(ranges[:len(ranges):len(ranges)], in.Ranges...)
		}
	}
	return ranges
}

// NewRecorder makes a recorder. If there is an output it begins a table in it.
func NewRecorder(o Options) (*Recorder, error) {
	if o.Block < 0 {
		return nil, fmt.Errorf("blocks of %d cells: give 1 or more, or 0 for %d", o.Block, kvcache.DefaultBlock)
	}
	r := &Recorder{o: o, ctxs: map[uint32]*context{}, now: execution{bitmaps: map[int]*kvcache.Bitmap{}}}
	if o.Out != nil {
		var err error
		if r.table, err = newLifeTable(o.Out, o.UnixOffset); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Recorder) context(number uint32) *context {
	x := r.ctxs[number]
	if x == nil {
		x = &context{number: number, requests: map[int32]*request{}, touched: map[int32]int64{}}
		r.ctxs[number] = x
	}
	return x
}

func (r *Recorder) saw(x *context, ns int64) {
	r.total.lastNS = max(r.total.lastNS, ns)
	if x != nil {
		x.lastNS = max(x.lastNS, ns)
	}
}

// failed returns the first error of a life's end, once.
func (r *Recorder) failed() error {
	err := r.err
	r.err = nil
	return err
}

// Context says nothing that is needed here.
func (r *Recorder) Context(*ggmlhooks.Context) error { return nil }

// Buffer says nothing that is needed here.
func (r *Recorder) Buffer(*ggmlhooks.Buffer) error { return nil }

// Graph keeps what a graph does to caches until its context has a newer one.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.context(g.Ctx).graph = &described{plan: newPlan(g)}
	return nil
}

// Begin notes that an execution begins.
func (r *Recorder) Begin(e *ggmlhooks.Execution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(e.Ctx)
	r.saw(x, e.MonoNS)
	x.held.on = x.held.on || e.Undecided
	if x.held.on && x.held.before == nil {
		before := r.total.clone()
		x.held.before = &before
	}
	return nil
}

// End takes in what an execution did.
func (r *Recorder) End(e *ggmlhooks.Execution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &r.now
	now.Execution, now.ctx = e, r.context(e.Ctx)
	now.g, now.rows = now.ctx.graph, now.rows[:0]
	for i := range e.Rows {
		row := &e.Rows[i]
		pos := row.Pos
		if pos < 0 {
			pos = kvcache.PosUnknown
		}
		now.rows = append(now.rows, kvcache.Row{Cell: -1, Pos: pos, Seqs: row.Seqs})
	}
	r.saw(now.ctx, e.End.MonoNS)
	r.apply(now, e.End.Status != 0)
	for i := range now.rows {
		if seqs := now.rows[i].Seqs; len(seqs) > 0 {
			now.ctx.touched[seqs[0]] = e.End.MonoNS
		}
	}
	return r.failed()
}

// BufferEnd ends the lives in a cache whose memory was freed: watching them ends, so they are censored.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saw(nil, e.MonoNS)
	for _, x := range r.ctxs {
		for _, t := range slices.Clone(x.caches) {
			if t.buffers[e.ID] {
				r.settle(x)
				r.freed = append(r.freed, t.Gauge(x.number))
				r.freed = r.freed[max(0, len(r.freed)-kvcache.MaxFreed):]
				t.End(e.MonoNS)
				x.caches = slices.DeleteFunc(x.caches, func(other *tracked) bool { return other == t })
				x.memory.Caches = slices.DeleteFunc(x.memory.Caches, func(other *kvcache.Cache) bool { return other == t.Cache })
				x.graph.works = nil // they are found anew
			}
		}
	}
	return r.failed()
}
