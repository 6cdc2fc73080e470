package ggmlhooks

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
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
	fanout
	// Joiner makes the rows of executions. Set before the first report, it may be that of another Assembler of the
	// same process, which had the executions before.
	Joiner *RowJoiner
	// Slots are where tensors wait, see [SlotHold]. Its fields are set before the first report.
	Slots SlotHold

	recorders  []io.Closer
	hold, held int64 // bytes
	ctxs       map[uint32]*assembly
	graphs     map[uint64]*Graph
	open       map[uint64]*Execution
	free       []*Execution
	refusal    *refusal // nil: everything is recorded
	closed     bool
}

// assembly is the executions of a context that are not both settled and recorded yet, in order.
type assembly struct {
	*Assembler
	ctx         uint32
	newest      uint64 // graph
	waiting     []*Execution
	settled     int          // of waiting
	recorded    int          // of waiting
	running     []*Execution // used again
	first, last uint64       // executions that were recorded as undecided, 0 = none
}

// refusal is what the recorders beside that of tensors are handed when the Assembler is closed.
type refusal struct {
	decided list[Decided]
	waiting []Execution
}

// NewAssembler makes an assembler for recorders that hear of a report in this order. hold is the most bytes of
// undecided executions that it holds back; beyond them they are recorded as undecided. 0 = [DefaultHold].
func NewAssembler(hold int64, recorders ...io.Closer) *Assembler {
	a := &Assembler{
		fanout: newFanout(recorders...), Joiner: &RowJoiner{}, recorders: recorders, hold: cmp.Or(hold, DefaultHold),
		ctxs: map[uint32]*assembly{}, graphs: map[uint64]*Graph{}, open: map[uint64]*Execution{},
	}
	if takers := listOf[Tensors](recorders); len(takers) > 0 {
		a.Slots.to = takers[0]
	}
	return a
}

// assemblyOf returns that of a context.
func assemblyOf(a *Assembler, ctx uint32) *assembly {
	w := a.ctxs[ctx]
	if w == nil {
		w = &assembly{Assembler: a, ctx: ctx}
		a.ctxs[ctx] = w
	}
	return w
}

// assemblies are those of all contexts, by number.
func assemblies(a *Assembler) (all []*assembly) {
	for _, ctx := range slices.Sorted(maps.Keys(a.ctxs)) {
		all = append(all, a.ctxs[ctx])
	}
	return all
}

// Context notes how a context cuts its batches.
func (a *Assembler) Context(c *Context) error {
	a.Joiner.Context(c)
	return a.contexts.each(func(r Contexts) error { return r.Context(c) })
}

// Graph keeps a description until its context has a newer one.
func (a *Assembler) Graph(g *Graph) error {
	w := assemblyOf(a, g.Ctx)
	delete(a.graphs, w.newest)
	w.newest, a.graphs[g.ID] = g.ID, g
	return a.graphed.each(func(r Graphs) error { return r.Graph(g) })
}

// Call notes the program's batch.
func (a *Assembler) Call(c *Call) error {
	a.Joiner.Call(c)
	return a.called.each(func(r Called) error { return r.Call(c) })
}

// SeqChange notes what the program did to sequences.
func (a *Assembler) SeqChange(c *SeqChange) error {
	a.Joiner.SeqChange(c)
	return a.sequenced.each(func(r Sequenced) error { return r.SeqChange(c) })
}

// Exec begins an execution. One of its context that has not ended lost its end.
func (a *Assembler) Exec(e *Exec) error {
	g := a.graphs[e.Graph]
	if g == nil || g.Ctx != e.Ctx {
		return fmt.Errorf("%w: execution %d of graph %d, which its context did not describe",
			ErrDesync, e.Number, e.Graph)
	}
	if len(a.free) == 0 {
		a.free = append(a.free, &Execution{})
	}
	last := len(a.free) - 1
	x := a.free[last]
	a.free = a.free[:last]
	x.begin(e, g)
	x.Rows, x.Begun, x.Phase = a.Joiner.Join(x.Rows, x.Begun, e)
	x.Drafts = a.Joiner.Drafts(e.Ctx)
	w := assemblyOf(a, e.Ctx)
	a.open[e.Number], w.waiting = x, append(w.waiting, x)
	var err error
	if !x.Undecided {
		err = a.Slots.start(x)
	}
	return errors.Join(err, a.live.each(func(r Live) error { return r.Begin(x) }))
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

// Capture hands a tensor to its recorder, unless it is not decided what its execution is. One that shows which experts
// were chosen is kept.
func (a *Assembler) Capture(c *Capture) error {
	x := a.open[c.Exec]
	if c.For&ForStream != 0 && a.Slots.to != nil {
		if err := a.Slots.passOrHold(x, c); err != nil || !a.Slots.full() {
			return err
		}
		return a.Relieve()
	}
	if x != nil && c.For&ForRouting != 0 && c.Blocks <= 1 && c.Node >= 0 {
		x.routed(c)
	}
	c.Release()
	return nil
}

// Relieve starts the executions that are held back with their tensors, because their slots are needed. They stay
// undecided.
func (a *Assembler) Relieve() error {
	if a.Slots.held == 0 {
		return nil
	}
	for _, w := range assemblies(a) {
		for _, x := range w.waiting[w.settled:] {
			if x.Undecided && !x.started {
				if err := a.Slots.start(x); err != nil {
					return err
				}
			}
		}
	}
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

// ExecEnd ends an execution. It is settled unless it is undecided, and recorded unless a device may still compute it
// too. Live recorders are called after that, so that the event log has the execution before its changes of cells.
func (a *Assembler) ExecEnd(e ExecEnd) error {
	x := a.open[e.Number]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	delete(a.open, e.Number)
	x.end(&e)
	a.held += x.bytes()
	w := assemblyOf(a, x.Ctx)
	if running := w.computing(); !x.computing {
		done(running)
	} else if len(running) > maxComputing {
		running[0].UntilNS = running[1].MonoNS
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
			if x.UntilNS = e.MonoNS; i+1 < len(running) {
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
	var failed error
	if e.Discarded {
		a.Joiner.Forget(e.Ctx)
		if w.first != 0 {
			first, last := w.first, w.last
			failed = a.retract.each(func(r Retractor) error { return r.Retract(e.Ctx, first, last) })
		}
	}
	w.first, w.last = 0, 0
	for _, x := range w.waiting {
		if !x.Undecided || x.Number > e.Exec {
			continue
		}
		x.Undecided, a.Slots.decided = false, true
		if e.Discarded {
			x.Phase = PhaseSetup
			failed = errors.Join(failed, a.Slots.handOn(x))
		} else if !x.started {
			failed = errors.Join(failed, a.Slots.start(x))
		}
	}
	return errors.Join(failed, w.advance(), a.live.each(func(r Live) error { return r.Resolve(e) }))
}

// advance settles and records what is ready at the head of a context's executions. One that has not ended, while a
// later one began, lost its end.
func (w *assembly) advance() error {
	n := w.recorded
	for n < len(w.waiting) && (w.waiting[n].ready() || !w.waiting[n].Ended && n+1 < len(w.waiting)) {
		n++
	}
	return errors.Join(w.settle(), w.record(n))
}

// settle settles what has ended and is decided.
func (w *assembly) settle() (failed error) {
	for ; w.settled < len(w.waiting); w.settled++ {
		x := w.waiting[w.settled]
		if x.Undecided || !x.Ended && w.settled+1 == len(w.waiting) {
			break
		}
		failed = errors.Join(failed, w.Slots.settle(x))
	}
	if w.Slots.decided {
		failed = errors.Join(failed, w.Slots.commit(unsettled(w.Assembler)))
	}
	return failed
}

// unsettled is the first token of an execution that is not settled.
func unsettled(a *Assembler) int64 {
	first := int64(math.MaxInt64)
	for _, w := range a.ctxs {
		for _, x := range w.waiting[w.settled:] {
			if len(x.Rows) > 0 {
				first = min(first, x.TokenFirst)
				break
			}
		}
	}
	return first
}

// record records the first n executions of a context, and gives up those that are settled too.
func (w *assembly) record(n int) error {
	due := w.waiting[w.recorded:n]
	err := w.decided.each(func(r Decided) (first error) {
		for _, x := range due {
			if err := r.Record(x); err != nil && first == nil {
				first = err
			}
		}
		return first
	})
	for i, x := range due {
		if x.Ended {
			w.held -= x.bytes()
		}
		if x.Undecided && x.Ended {
			w.first, w.last = cmp.Or(w.first, x.Number), x.Number
		}
		if w.recorded+i >= w.settled {
			x.shed() // it may wait for long
		}
	}
	w.recorded = n
	over := w.waiting[:min(w.settled, n)]
	for _, x := range over {
		delete(w.open, x.Number)
	}
	if w.refusal == nil { // else recorders are still to be handed what these hold
		w.free = append(w.free, over...)
	}
	w.settled, w.recorded = w.settled-len(over), w.recorded-len(over)
	w.waiting = slices.Delete(w.waiting, 0, len(over))
	return err
}

// relieve records what has ended of every context, decided or not, if too much is held back.
func relieve(a *Assembler) error {
	if a.held <= a.hold {
		return nil
	}
	var errs []error
	for _, w := range assemblies(a) {
		n := w.recorded
		for n < len(w.waiting) && w.waiting[n].Ended && !w.waiting[n].computing {
			n++
		}
		errs = append(errs, w.record(n))
	}
	return errors.Join(errs...)
}

// Refuse ends recording, after a failure or because a bound is reached. The recorder of tensors continues counting:
// executions of which it had written something, and those before them, are the run, since that is what was written;
// others are decided about as before. The other recorders get nothing more, until Close hands them what waits now.
func (a *Assembler) Refuse() error {
	if a.refusal != nil || a.Slots.to == nil {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(a.recorders), func(r io.Closer) bool { return r == io.Closer(a.Slots.to) })
	a.refusal, a.fanout = &refusal{decided: listOf[Decided](others)}, newFanout(a.Slots.to)
	all := assemblies(a)
	var started []*Execution
	for _, w := range all {
		for _, x := range w.waiting[w.recorded:] {
			a.refusal.waiting = append(a.refusal.waiting, *x)
		}
		for _, x := range w.waiting[w.settled:] {
			if x.started {
				started = append(started, x)
			}
		}
	}
	errs := []error{a.Slots.to.Refuse(started)}
	for _, w := range all {
		written, last := false, uint64(0)
		for _, x := range w.waiting[w.settled:] {
			if x.Undecided {
				written, last = written || x.started, x.Number
			}
		}
		if written {
			errs = append(errs, a.Resolve(Resolve{Ctx: w.ctx, Exec: last}))
		}
	}
	return errors.Join(errs...)
}

// Finish settles what waits, when the model has ended: nothing was discarded, so it was the run. What did not end,
// because the model was killed, keeps what was captured of it.
func (a *Assembler) Finish() error {
	var errs []error
	for _, w := range assemblies(a) {
		for ; w.settled < len(w.waiting); w.settled++ {
			x := w.waiting[w.settled]
			x.CutOff = !x.Ended && w.settled+1 == len(w.waiting)
			if !x.started && x.Phase != PhaseSetup {
				errs = append(errs, a.Slots.start(x))
			}
			errs = append(errs, a.Slots.settle(x))
		}
	}
	if a.Slots.decided {
		errs = append(errs, a.Slots.commit(math.MaxInt64))
	}
	return errors.Join(errs...)
}

// Close finishes, records what waits and closes the recorders. It may be called twice.
func (a *Assembler) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	errs := []error{a.Finish()}
	if a.refusal != nil {
		for i := range a.refusal.waiting {
			x := &a.refusal.waiting[i]
			x.Undecided = x.Undecided && !x.Ended
			errs = append(errs, a.refusal.decided.each(func(r Decided) error { return r.Record(x) }))
		}
	}
	for _, w := range assemblies(a) {
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
