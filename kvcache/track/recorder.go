package track

import (
	"errors"
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
	// out to be set-up is not told, so that the first operations of a context may come late. An error of it is an
	// error of the recorder.
	Operation func(*kvcache.Operation) error
}

// ErrDesync occurs when the tap reports something of a graph or an execution that it did not announce.
var ErrDesync = errors.New("the tap's reports do not fit together")

// Recorder is a ggmlhooks.Sink that follows caches. Its methods may be called by one goroutine, Snapshot by any.
type Recorder struct {
	ggmlhooks.NoMachine
	mu     sync.Mutex
	o      Options
	table  *lifeTable
	joiner ggmlhooks.RowJoiner
	ctxs   map[uint32]*context
	graphs map[uint64]*described
	open   *execution // of which the end was not told
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
	lastNS         int64 // that something was told of
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
	newest   uint64          // graph
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
	number  uint64
	ctx     *context
	g       *described
	ns      int64 // graph entry
	timesNS int64 // when ggml was given the graph, 0 = not told
	joined  []ggmlhooks.Row
	rows    []kvcache.Row // the same, without cells yet
	begun   []ggmlhooks.RequestBegin
	times   []ggmlhooks.NodeTime
	cells   map[int][]int64               // by leaf
	ranges  map[int][]ggmlhooks.CellRange // by leaf
	bitmaps map[int]*kvcache.Bitmap       // by stream, used again
	streams []int                         // of which the bitmaps hold something now
	placed  []kvcache.Row                 // used again
}

func (x *execution) beginNS() int64 {
	if x.timesNS != 0 {
		return x.timesNS
	}
	return x.ns
}

// NewRecorder makes a recorder. If there is an output it begins a table in it.
func NewRecorder(o Options) (*Recorder, error) {
	if o.Block < 0 {
		return nil, fmt.Errorf("blocks of %d cells: give 1 or more, or 0 for %d", o.Block, kvcache.DefaultBlock)
	}
	r := &Recorder{o: o, ctxs: map[uint32]*context{}, graphs: map[uint64]*described{}}
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

// Context notes how a context cuts its batches.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joiner.Context(c)
	return nil
}

// Graph keeps what a graph does to caches until its context has a newer one.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(g.Ctx)
	delete(r.graphs, x.newest)
	x.newest = g.ID
	r.graphs[g.ID] = &described{plan: newPlan(g)}
	return nil
}

// Call notes the program's batch.
func (r *Recorder) Call(c *ggmlhooks.Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joiner.Call(c)
	return nil
}

// CallEnd ends nothing: what a failed call removed is known when its execution ends.
func (r *Recorder) CallEnd(ggmlhooks.CallEnd) error { return nil }

// Capture releases a tensor; none is needed here.
func (r *Recorder) Capture(c *ggmlhooks.Capture) error {
	if c.Release != nil {
		c.Release()
	}
	return nil
}

// Exec begins a micro-batch.
func (r *Recorder) Exec(e *ggmlhooks.Exec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.graphs[e.Graph]
	if g == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ErrDesync, e.Number, e.Graph)
	}
	x := r.context(e.Ctx)
	r.saw(x, e.MonoNS)
	x.held.on = x.held.on || e.Provisional
	if x.held.on && x.held.before == nil {
		before := r.total.clone()
		x.held.before = &before
	}
	now := r.execution()
	now.number, now.ctx, now.g, now.ns = e.Number, x, g, e.MonoNS
	now.joined, now.begun, _ = r.joiner.Join(now.joined, now.begun, e)
	for i := range now.joined {
		row := &now.joined[i]
		pos := row.Pos
		if pos < 0 {
			pos = kvcache.PosUnknown
		}
		now.rows = append(now.rows, kvcache.Row{Cell: -1, Pos: pos, Seqs: row.Seqs})
	}
	return nil
}

// execution is a new one that is open.
func (r *Recorder) execution() *execution {
	now := r.open
	if now == nil {
		now = &execution{cells: map[int][]int64{}, ranges: map[int][]ggmlhooks.CellRange{}, bitmaps: map[int]*kvcache.Bitmap{}}
		r.open = now
	}
	for leaf := range now.cells {
		now.cells[leaf] = now.cells[leaf][:0]
	}
	for leaf := range now.ranges {
		now.ranges[leaf] = now.ranges[leaf][:0]
	}
	now.rows, now.joined, now.begun, now.times, now.timesNS = now.rows[:0], now.joined[:0], now.begun[:0], now.times[:0], 0
	return now
}

// Input notes which cells an execution writes, or may read.
func (r *Recorder) Input(in *ggmlhooks.Input) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.open
	if now == nil || now.number != in.Exec {
		return fmt.Errorf("%w: an input of execution %d, which is not open", ErrDesync, in.Exec)
	}
	if in.Kind == ggmlhooks.InputMask {
		now.ranges[in.Leaf] = append(now.ranges[in.Leaf], in.Ranges...)
	} else {
		now.cells[in.Leaf] = append(now.cells[in.Leaf], in.Values...)
	}
	return nil
}

// Times notes when the nodes of an execution were computed.
func (r *Recorder) Times(t *ggmlhooks.Times) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.open; now != nil && now.number == t.Exec {
		now.timesNS, now.times = t.BeginNS, append(now.times[:0], t.Nodes...)
	}
	return nil
}

// ExecEnd takes in what an execution did.
func (r *Recorder) ExecEnd(e ggmlhooks.ExecEnd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.open
	if now == nil || now.ctx == nil || now.number != e.Number {
		return nil // its beginning was dropped, and counted
	}
	r.saw(now.ctx, e.MonoNS)
	if now.timesNS == 0 {
		now.timesNS = e.BeginNS
	}
	r.apply(now, e.Status != 0)
	for i := range now.rows {
		if seqs := now.rows[i].Seqs; len(seqs) > 0 {
			now.ctx.touched[seqs[0]] = e.MonoNS
		}
	}
	now.number, now.ctx = 0, nil
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
				r.forgetGraphs(x.number)
			}
		}
	}
	return r.failed()
}

// forgetGraphs makes the graphs of a context find their caches anew.
func (r *Recorder) forgetGraphs(ctx uint32) {
	for _, g := range r.graphs {
		if g.Ctx == ctx {
			g.works = nil
		}
	}
}
