package oplog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/jsonl"
)

// ErrDesync occurs when the tap reports something of a graph that it did not announce.
var ErrDesync = errors.New("the tap's reports do not fit together")

// maxHeld is how many executions of a context wait for it to be decided whether they are set-up. Beyond it the
// oldest is told as what it seems to be.
const maxHeld = 64

// Recorder is a ggmlhooks.Sink that writes resource events. It is for one goroutine; Stats may be called from others.
type Recorder struct {
	o       Options
	head    *header
	out     *jsonl.Writer
	line    jsonl.Line
	marks   []mark
	level   resource.Level
	rows    ggmlhooks.RowJoiner
	plans   map[uint64]*plan
	newest  map[uint32]uint64 // newest graph of each context
	open    map[uint64]*execution
	ctxs    map[uint32]*context
	free    []*execution
	memory  memory
	caches  cacheIDs
	totals  totals
	ended   bool
	scratch scratch
	gpus    []GPUReading // that are being told
}

// scratch is memory that events are made in.
type scratch struct {
	ids, positions, seqs []int32
	texts                []string
	numbers              []float32
	chosen               map[int32]bool
}

// context is what is known of a llama_context.
type context struct {
	pending []*execution // undecided, in order
	told    []uint64     // executions that were told before it was decided: first and last; empty: none
	phase   ggmlhooks.Phase
	last    map[int32]int64 // graph entry of a sequence's newest token
	price   int64           // of looking, as last measured
	tensors map[tensorKey]bool
	running []*execution // that a device may still compute, in order
}

// NewRecorder makes the first file and begins the session in it.
func NewRecorder(o Options) (*Recorder, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &Recorder{
		o: o, head: newHeader(o.SessionID, o.UnixOffset), level: o.Level, plans: map[uint64]*plan{}, newest: map[uint32]uint64{},
		open: map[uint64]*execution{}, ctxs: map[uint32]*context{}, memory: memory{buffers: map[uint64]*buffer{}, weights: map[ggmlhooks.Place]bool{}}, caches: cacheIDs{map[cacheID]string{}, map[cacheLayer]string{}},
		scratch: scratch{chosen: map[int32]bool{}}, totals: totals{start: o.Now(), phases: map[ggmlhooks.Phase]*resource.PhaseTotals{}},
	}
	lines := o.Lines
	lines.Kinds, lines.Limits, lines.Loss = resource.Kinds(), limits(o.PerSecond), r.head.loss
	var err error
	if r.out, err = jsonl.NewWriter(lines); err != nil {
		return nil, fmt.Errorf("record resource events: %w", err)
	}
	r.startSession()
	return r, nil
}

func (r *Recorder) context(number uint32) *context {
	c := r.ctxs[number]
	if c == nil {
		c = &context{last: map[int32]int64{}}
		r.ctxs[number] = c
	}
	return c
}

// SetLevel changes what is told of executions that begin from now on. resource.Off tells nothing more; totals go on.
func (r *Recorder) SetLevel(level resource.Level, mono int64) {
	if level == r.level {
		return
	}
	r.settleBuffers()
	r.head.see(mono)
	r.begin(resource.KindLevel, mono, noCtx)
	r.line.String("level", level.String())
	r.line.String("previous", r.level.String())
	r.put(resource.KindLevel, resource.Measured)
	r.level = level
}

// Level is the level that holds now.
func (r *Recorder) Level() resource.Level { return r.level }

// Stats returns what was written, and what was lost by cause.
func (r *Recorder) Stats() jsonl.Stats { return r.out.Stats() }

// Flush writes what is buffered.
func (r *Recorder) Flush() error {
	r.settleBuffers()
	r.tellGPUs()
	return r.out.Flush()
}

// Context notes how a context cuts its batches.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	r.settleBuffers()
	r.rows.Context(c)
	r.tellModel(c)
	return nil
}

// Graph works a graph out. Of the one before it, of the same context, nothing new will come.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.settleBuffers()
	if old, ok := r.newest[g.Ctx]; ok {
		delete(r.plans, old)
	}
	r.newest[g.Ctx] = g.ID
	device := ""
	if n := len(g.Nodes); n > 0 {
		device = r.memory.device(g.Nodes[n-1].Buffer)
	}
	r.caches.place(g, r.memory.device)
	r.tellWeights(g)
	p := newPlan(g, device, r.o.Legacy)
	p.remote = r.remote(g)
	r.plans[g.ID] = p
	return nil
}

// Call notes the program's batch.
func (r *Recorder) Call(c *ggmlhooks.Call) error {
	r.settleBuffers()
	r.rows.Call(c)
	return nil
}

// CallEnd ends nothing: micro-batches are framed by themselves.
func (r *Recorder) CallEnd(ggmlhooks.CallEnd) error { return nil }

// SeqChange notes what the program did to sequences.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.rows.SeqChange(c)
	return nil
}

// Exec begins a micro-batch.
func (r *Recorder) Exec(e *ggmlhooks.Exec) error {
	r.settleBuffers()
	p := r.plans[e.Graph]
	if p == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ErrDesync, e.Number, e.Graph)
	}
	r.head.see(e.MonoNS)
	x := r.take()
	x.exec, x.graph, x.ctx, x.mono, x.reused, x.tokenFirst = e.Number, e.Graph, e.Ctx, e.MonoNS, e.Reused, e.TokenFirst
	x.plan, x.level = p, r.level
	x.outputs = append(x.outputs, e.Outputs...)
	x.rows, x.begun, x.phase = r.rows.Join(x.rows, x.begun, e)
	r.open[e.Number] = x
	if e.Provisional {
		ctx := r.context(e.Ctx)
		ctx.pending = append(ctx.pending, x)
	}
	return nil
}

func (r *Recorder) take() *execution {
	if n := len(r.free); n > 0 {
		x := r.free[n-1]
		r.free = r.free[:n-1]
		x.reset()
		return x
	}
	return &execution{}
}

// Times keeps when nodes were computed.
func (r *Recorder) Times(t *ggmlhooks.Times) error {
	x := r.open[t.Exec]
	if x == nil || x.level == resource.Minimal || x.level == resource.Off {
		return nil
	}
	for _, n := range t.Nodes {
		if n.Node < 0 || int(n.Node) >= len(x.plan.nodes) {
			return fmt.Errorf("%w: a time of node %d of graph %d, which has %d", ErrDesync, n.Node, t.Graph, len(x.plan.nodes))
		}
	}
	x.timed, x.timesBegin = true, t.BeginNS
	x.times = append(x.times[:0], t.Nodes...)
	return nil
}

// Capture keeps which experts were chosen.
func (r *Recorder) Capture(c *ggmlhooks.Capture) error {
	defer c.Release()
	x := r.open[c.Exec]
	if x == nil || c.For&ggmlhooks.ForRouting == 0 || c.Blocks > 1 || c.Node < 0 || !x.level.Includes(resource.KindRouting) {
		return nil
	}
	x.routed = append(x.routed, routed{c.Node, c.NE, len(x.data), len(c.Data)})
	x.data = append(x.data, c.Data...)
	return nil
}

// ExecEnd ends a micro-batch. It is told of, unless it may still turn out to be set-up.
func (r *Recorder) ExecEnd(e ggmlhooks.ExecEnd) error {
	x := r.open[e.Number]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	r.head.see(e.MonoNS)
	r.tellGPUs()
	delete(r.open, e.Number)
	x.ended, x.end, x.begin, x.async, x.status = true, e.MonoNS, e.BeginNS, e.Async, e.Status
	ctx := r.context(x.ctx)
	if e.Async && e.Status == 0 {
		r.awaits(ctx, x)
		r.relieve(ctx)
		return nil
	}
	r.give(ctx, len(ctx.running))
	if slices.Contains(ctx.pending, x) {
		r.relieve(ctx)
		return nil
	}
	r.tell(ctx, x)
	return nil
}

// relieve tells the oldest of too many undecided executions.
func (r *Recorder) relieve(ctx *context) {
	if len(ctx.pending) <= maxHeld || !ctx.pending[0].ended || ctx.pending[0].waits {
		return
	}
	x := ctx.pending[0]
	ctx.pending = append(ctx.pending[:0], ctx.pending[1:]...)
	if len(ctx.told) == 0 {
		ctx.told = append(ctx.told, x.exec, x.exec)
	}
	ctx.told[1] = x.exec
	r.tell(ctx, x)
}

// Resolve decides about a context's executions up to e.Exec.
func (r *Recorder) Resolve(e ggmlhooks.Resolve) error {
	ctx := r.context(e.Ctx)
	if e.Discarded {
		r.rows.Forget(e.Ctx)
		clear(ctx.last)
		r.retract(e.Ctx, ctx)
	}
	ctx.told = ctx.told[:0]
	n := 0
	for ; n < len(ctx.pending) && ctx.pending[n].exec <= e.Exec; n++ {
		x := ctx.pending[n]
		if e.Discarded {
			x.phase = ggmlhooks.PhaseSetup
		}
		if x.ended && !x.waits {
			r.tell(ctx, x)
		} // else when it is done
	}
	ctx.pending = append(ctx.pending[:0], ctx.pending[n:]...)
	return nil
}

// Close tells what is undecided as what it seems to be, writes the totals and ends the file. It may be called twice.
func (r *Recorder) Close() error {
	if r.ended {
		return nil
	}
	r.ended = true
	r.settleBuffers()
	for _, ctx := range r.ctxs {
		r.give(ctx, len(ctx.running))
		for _, x := range ctx.pending {
			if x.ended {
				r.tell(ctx, x)
			}
		}
		ctx.pending = nil
	}
	r.tellGPUs()
	r.endSession(r.o.Now())
	if err := r.out.Close(); err != nil {
		return fmt.Errorf("record resource events: %w", err)
	}
	return nil
}
