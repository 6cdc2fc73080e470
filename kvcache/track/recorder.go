package track

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

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
	out    journal
	ctxs   map[uint32]*cacheContext
	plans  ggmlhooks.Plans[*described]
	now    execution // used again
	reuse  kvcache.Reuse
	doubts kvcache.Doubts
	lastNS int64 // of the last report
	madeNS int64 // when the first graph of the newest cache began
	closed bool
	last   kvcache.Snapshot // once it is closed: how the caches were used

	sampled map[uint32]bool // contexts whose sequences are given samplers
	drafts  kvcache.Reuse   // of the others, where there are such: draft models' prompts are those of their targets
}

// described is a graph with what it does to caches.
type described struct {
	*plan
	works []*work
	made  int // of the context, when works were found; -1: never
}

// NewRecorder makes a recorder. If there is an output it begins a table in it.
func NewRecorder(o Options) (*Recorder, error) {
	if o.Block < 0 {
		return nil, fmt.Errorf("blocks of %d cells: give 1 or more, or 0 for %d", o.Block, kvcache.DefaultBlock)
	}
	r := &Recorder{o: o, ctxs: map[uint32]*cacheContext{}, sampled: map[uint32]bool{},
		out: journal{operation: o.Operation, unixOffset: o.UnixOffset}}
	r.now = execution{bitmaps: map[int]*kvcache.Bitmap{}, doubts: &r.doubts}
	if o.Out != nil {
		var err error
		if r.out.table, err = newLifeTable(o.Out, o.UnixOffset); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Recorder) context(number uint32) *cacheContext {
	x := r.ctxs[number]
	if x == nil {
		x = &cacheContext{
			number: number, block: r.o.Block, out: &r.out,
			requests: requests{of: map[int32]*seqRequest{}, touched: map[int32]int64{}},
		}
		r.ctxs[number] = x
		r.count(x)
	}
	return x
}

// count finds where the prompts of a context count.
func (r *Recorder) count(x *cacheContext) {
	x.requests.reuse = &r.reuse
	if len(r.sampled) > 0 && !r.sampled[x.number] {
		x.requests.reuse = &r.drafts
	}
}

// Buffer does nothing: the tensors of caches name their buffers.
func (r *Recorder) Buffer(*ggmlhooks.Buffer) error { return nil }

// Graph works out what a graph does to caches.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.plans.Put(g, &described{plan: newPlan(g), made: -1})
	return nil
}

// Begin notes that an execution begins: what is done to its context's sequences from now on comes after it.
func (r *Recorder) Begin(e *ggmlhooks.Execution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(e.Ctx)
	x.begun, x.undecided = e.Number, x.undecided || e.Undecided
	r.lastNS = max(r.lastNS, e.MonoNS)
	return nil
}

// End notes when an execution ended; Record takes it in.
func (r *Recorder) End(e *ggmlhooks.Execution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastNS = max(r.lastNS, e.End.MonoNS)
	return nil
}

// Record takes in what an execution did. Of a set-up only the caches are taken in.
func (r *Recorder) Record(e *ggmlhooks.Execution) error {
	g := r.plans.Of(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(e.Ctx)
	if e.Ended && g.made != x.made {
		known := len(x.caches)
		g.works, g.made = x.works(g.plan), x.made
		if len(x.caches) > known {
			r.madeNS = max(r.madeNS, e.BeganNS())
		}
	}
	if e.Ended && e.Phase != ggmlhooks.PhaseSetup {
		r.now.begin(e, x, g)
		r.now.apply(&r.out)
		x.requests.touch(&r.now)
	}
	x.recorded = e.Number
	x.catchUp(e.Number, e.Phase == ggmlhooks.PhaseSetup)
	return r.out.failed()
}

// SeqChange takes in what the program did to sequences, after the executions before it.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(c.Ctx)
	r.lastNS = max(r.lastNS, c.MonoNS)
	if c.Kind == ggmlhooks.SeqRestore && len(x.caches) == 0 {
		x.unseen = true
	}
	if c.Kind == ggmlhooks.SeqSampler && !r.sampled[c.Ctx] {
		r.sampled[c.Ctx] = true
		for _, x := range r.ctxs {
			r.count(x)
		}
	}
	change := *c
	x.add(waiting{change: &change})
	return r.out.failed()
}

// Resolve empties the caches of a context that a set-up has left.
func (r *Recorder) Resolve(e ggmlhooks.Resolve) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.context(e.Ctx)
	if x.undecided && e.Discarded {
		for _, t := range x.caches {
			t.Forget()
		}
		x.requests.forget()
	}
	x.undecided = false
	return nil
}

// BufferEnd ends the lives in a cache whose memory was freed, after the executions before it.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastNS = max(r.lastNS, e.MonoNS)
	for _, x := range r.ctxs {
		x.add(waiting{freed: e})
	}
	return r.out.failed()
}

// Snapshot says how the caches are used now, and after [Recorder.Close] how they were used then. Any goroutine may
// call it.
func (r *Recorder) Snapshot() kvcache.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.last.Clone()
	}
	return r.snapshot()
}

func (r *Recorder) snapshot() kvcache.Snapshot {
	s := kvcache.Snapshot{
		Reuse: r.reuse, Lifetime: r.out.lifetime, Idle: r.out.idle, Doubts: r.doubts, Freed: slices.Clone(r.out.freed),
	}
	if r.lastNS != 0 {
		s.UnixNS = r.lastNS + r.o.UnixOffset
	}
	if r.madeNS != 0 {
		s.MadeUnixNS = r.madeNS + r.o.UnixOffset
	}
	for _, number := range slices.Sorted(maps.Keys(r.ctxs)) {
		for _, t := range r.ctxs[number].caches {
			s.Caches = append(s.Caches, t.Gauge(number))
		}
	}
	return s.Clone()
}

// Close ends watching: lives that have not ended are censored, and the table is completed. It may be called twice.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	numbers := slices.Sorted(maps.Keys(r.ctxs))
	for _, number := range numbers {
		r.ctxs[number].catchUp(math.MaxUint64, false)
	}
	r.last = r.snapshot() // before all lives are ended
	for _, number := range numbers {
		for _, t := range r.ctxs[number].caches {
			t.End(r.lastNS)
		}
	}
	err := r.out.failed()
	if r.out.table != nil {
		if closing := r.out.table.close(&r.last); err == nil {
			err = closing
		}
	}
	return err
}
