package ggmlhooks

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Hot path: no allocation per execution in steady state.

// ErrDesync occurs when the tap reports something of a graph or an execution that it did not announce.
var ErrDesync = errors.New("the tap's reports do not fit together")

// DefaultHold is the most bytes of undecided executions that an Assembler holds back.
const DefaultHold = 32 << 20

// maxComputing is how many executions of a context wait for a program that never synchronises with its device.
const maxComputing = 64

// Assembler is the [Sink] that joins reports to executions and decides what they were, once for all recorders. It is
// for one goroutine. An error of a recorder does not keep a report from the others; the first one is returned.
type Assembler struct {
	recorders []io.Closer
	decided   list[Decided]
	live      list[Live]
	describe  list[Describer]
	retract   list[Retractor]
	memory    list[Memory]
	sampled   list[Sampled]
	sequenced list[Sequenced]

	hold, held int64 // bytes
	joiner     RowJoiner
	ctxs       map[uint32]*assembly
	graphs     map[uint64]*Graph
	open       map[uint64]*Execution
	free       []*Execution
	closed     bool
}

// assembly is the executions of a context that are not recorded yet, in order.
type assembly struct {
	*Assembler
	newest      uint64 // graph
	waiting     []*Execution
	running     []*Execution // used again
	first, last uint64       // executions that were recorded as undecided, 0 = none
}

// NewAssembler makes an assembler for recorders that hear of a report in this order. hold is the most bytes of
// undecided executions that it holds back; beyond them they are recorded as undecided. 0 = [DefaultHold].
func NewAssembler(hold int64, recorders ...io.Closer) *Assembler {
	return &Assembler{
		recorders: recorders, decided: listOf[Decided](recorders), live: listOf[Live](recorders),
		describe: listOf[Describer](recorders), retract: listOf[Retractor](recorders),
		memory: listOf[Memory](recorders), sampled: listOf[Sampled](recorders), sequenced: listOf[Sequenced](recorders),
		hold: cmp.Or(hold, DefaultHold), ctxs: map[uint32]*assembly{},
		graphs: map[uint64]*Graph{}, open: map[uint64]*Execution{},
	}
}

// assemblyOf returns that of a context.
func assemblyOf(a *Assembler, ctx uint32) *assembly {
	w := a.ctxs[ctx]
	if w == nil {
		w = &assembly{Assembler: a}
		a.ctxs[ctx] = w
	}
	return w
}

// Context notes how a context cuts its batches.
func (a *Assembler) Context(c *Context) error {
	a.joiner.Context(c)
	return a.describe.each(func(r Describer) error { return r.Context(c) })
}

// Graph keeps a description until its context has a newer one.
func (a *Assembler) Graph(g *Graph) error {
	w := assemblyOf(a, g.Ctx)
	delete(a.graphs, w.newest)
	w.newest, a.graphs[g.ID] = g.ID, g
	return a.describe.each(func(r Describer) error { return r.Graph(g) })
}

// Call notes the program's batch.
func (a *Assembler) Call(c *Call) error {
	a.joiner.Call(c)
	return nil
}

// SeqChange notes what the program did to sequences.
func (a *Assembler) SeqChange(c *SeqChange) error {
	a.joiner.SeqChange(c)
	return a.sequenced.each(func(r Sequenced) error { return r.SeqChange(c) })
}

// Exec begins an execution. One of its context that has not ended lost its end.
func (a *Assembler) Exec(e *Exec) error {
	g := a.graphs[e.Graph]
	if g == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ErrDesync, e.Number, e.Graph)
	}
	if len(a.free) == 0 {
		a.free = append(a.free, &Execution{})
	}
	last := len(a.free) - 1
	x := a.free[last]
	a.free = a.free[:last]
	x.begin(e, g)
	x.Rows, x.Begun, x.Phase = a.joiner.Join(x.Rows, x.Begun, e)
	w := assemblyOf(a, e.Ctx)
	a.open[e.Number], w.waiting = x, append(w.waiting, x)
	return a.live.each(func(r Live) error { return r.Begin(x) })
}

// Input keeps what an execution was given.
func (a *Assembler) Input(in *Input) error {
	x := a.open[in.Exec]
	if x == nil {
		return fmt.Errorf("%w: an input of execution %d, which is not open", ErrDesync, in.Exec)
	}
	x.input(in)
	return nil
}

// Capture keeps a tensor that shows which experts were chosen, and releases it.
func (a *Assembler) Capture(c *Capture) error {
	if x := a.open[c.Exec]; x != nil && c.For&ForRouting != 0 && c.Blocks <= 1 && c.Node >= 0 {
		x.routed(c)
	}
	c.Release()
	return nil
}

// Times keeps when nodes were computed.
func (a *Assembler) Times(t *Times) error {
	x := a.open[t.Exec]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	for _, n := range t.Nodes {
		if n.Node < 0 || int(n.Node) >= len(x.Graph.Nodes) {
			return fmt.Errorf("%w: a time of node %d of graph %d, which has %d",
				ErrDesync, n.Node, t.Graph, len(x.Graph.Nodes))
		}
	}
	nodes := append(x.Times.Nodes[:0], t.Nodes...)
	x.Timed, x.Times = true, *t
	x.Times.Nodes = nodes
	return nil
}

// ExecEnd ends an execution. It is recorded unless it is undecided, or a device may still compute it. Live recorders
// hear of it after that: what happened to cells follows the execution in the log of events.
func (a *Assembler) ExecEnd(e ExecEnd) error {
	x := a.open[e.Number]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	delete(a.open, e.Number)
	x.Ended, x.End, x.computing = true, e, e.Async && e.Status == 0
	x.End.Losses = nil
	a.held += x.bytes()
	w := assemblyOf(a, x.Ctx)
	if running := w.computing(); !x.computing {
		done(running)
	} else if len(running) > maxComputing {
		done(running[:1])
	}
	err := errors.Join(w.advance(), relieve(a)) // x is not used again before the next Exec
	return errors.Join(err, a.live.each(func(r Live) error { return r.End(x) }))
}

// computing are the executions that a device may still compute.
func (w *assembly) computing() []*Execution {
	w.running = w.running[:0]
	for _, x := range w.waiting {
		if x.computing {
			w.running = append(w.running, x)
		}
	}
	return w.running
}

func done(running []*Execution) {
	for _, x := range running {
		x.computing = false
	}
}

// Sync ends the executions that a device has computed. When one of several was done is not known.
func (a *Assembler) Sync(e Sync) error {
	var errs []error
	for _, w := range a.ctxs {
		running := w.computing()
		n := slices.IndexFunc(running, func(x *Execution) bool { return x.Number == e.Exec }) + 1
		if n == 0 {
			continue
		}
		for i, x := range running[:n] {
			if x.UntilNS = e.MonoNS; i+1 < n {
				x.UntilNS = running[i+1].MonoNS
			}
		}
		if n == 1 && e.Graphs == 1 {
			running[0].DoneNS, running[0].SyncNS = e.MonoNS, e.WaitNS
		}
		done(running[:n])
		errs = append(errs, w.advance())
	}
	return errors.Join(errs...)
}

// Resolve decides what a context's executions up to e.Exec were.
func (a *Assembler) Resolve(e Resolve) error {
	w := assemblyOf(a, e.Ctx)
	var errs []error
	if e.Discarded {
		a.joiner.Forget(e.Ctx)
		if w.first != 0 {
			first, last := w.first, w.last
			errs = append(errs, a.retract.each(func(r Retractor) error { return r.Retract(e.Ctx, first, last) }))
		}
	}
	w.first, w.last = 0, 0
	for _, x := range w.waiting {
		if x.Undecided && x.Number <= e.Exec {
			x.Undecided = false
			if e.Discarded {
				x.Phase = PhaseSetup
			}
		}
	}
	errs = append(errs, w.advance(), a.live.each(func(r Live) error { return r.Resolve(e) }))
	return errors.Join(errs...)
}

// advance records what is ready at the head of a context's executions. One that has not ended, while a later one
// began, lost its end.
func (w *assembly) advance() error {
	n := 0
	for n < len(w.waiting) && (w.waiting[n].ready() || !w.waiting[n].Ended && n+1 < len(w.waiting)) {
		n++
	}
	return w.record(n)
}

// record records the first n executions of a context.
func (w *assembly) record(n int) error {
	if n == 0 {
		return nil
	}
	err := w.decided.each(func(r Decided) (first error) {
		for _, x := range w.waiting[:n] {
			if err := r.Record(x); err != nil && first == nil {
				first = err
			}
		}
		return first
	})
	for _, x := range w.waiting[:n] {
		delete(w.open, x.Number)
		if x.Ended {
			w.held -= x.bytes()
		}
		if x.Undecided && x.Ended {
			w.first, w.last = cmp.Or(w.first, x.Number), x.Number
		}
	}
	w.free = append(w.free, w.waiting[:n]...)
	w.waiting = slices.Delete(w.waiting, 0, n)
	return err
}

// relieve records what has ended of every context, decided or not, if too much is held back.
func relieve(a *Assembler) error {
	if a.held <= a.hold {
		return nil
	}
	var errs []error
	for _, ctx := range slices.Sorted(maps.Keys(a.ctxs)) {
		w, n := a.ctxs[ctx], 0
		for n < len(w.waiting) && w.waiting[n].Ended && !w.waiting[n].computing {
			n++
		}
		errs = append(errs, w.record(n))
	}
	return errors.Join(errs...)
}

// Buffer notes that memory came.
func (a *Assembler) Buffer(b *Buffer) error {
	return a.memory.each(func(r Memory) error { return r.Buffer(b) })
}

// BufferEnd notes that memory went.
func (a *Assembler) BufferEnd(e BufferEnd) error {
	return a.memory.each(func(r Memory) error { return r.BufferEnd(e) })
}

// Sample notes a sampler's choice.
func (a *Assembler) Sample(c *Sample) error {
	return a.sampled.each(func(r Sampled) error { return r.Sample(c) })
}

// Close records what waits, when the model has ended: nothing was discarded, so it was the run. Then it closes the
// recorders. It may be called twice.
func (a *Assembler) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	var errs []error
	for _, ctx := range slices.Sorted(maps.Keys(a.ctxs)) {
		w := a.ctxs[ctx]
		done(w.waiting)
		for _, x := range w.waiting {
			x.Undecided = x.Undecided && !x.Ended
		}
		errs = append(errs, w.record(len(w.waiting)))
	}
	for _, r := range a.recorders {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
