package capture

import (
	"errors"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/stream"
)

// Hot path: one packet per captured tensor, no allocation in steady state, no copy (sampling excepted).

// Stream is where packets go: a stream.Writer.
type Stream interface {
	Append(p *stream.Packet, data []byte, release func()) error
	AppendExecution(e *stream.Execution) error
	AppendRequest(b ggmlhooks.RequestBegin) error
	AppendResolution(r stream.Resolution) error
	Commit() error
}

// Tokens is where token rows go that are known to be of the run, in order.
type Tokens interface {
	Append(ctx uint32, row *ggmlhooks.Row) error
}

// Options says how a Recorder works.
type Options struct {
	Selection ggmlhooks.Selection
	Stream    Stream
	Tokens    Tokens
	// UnixOffset is what must be added to a monotonic time to make it a Unix time, in nanoseconds.
	UnixOffset int64
	// HoldBytes bounds what is held back undecided; 0 = no bound. Beyond it everything is written. What is held is
	// counted in whole multiples of HoldUnit bytes, a slot's size, so that when that is does not depend on how fast
	// anybody is.
	HoldBytes, HoldUnit int64
}

// Recorder is a ggmlhooks.Sink that writes a stream. It is for one goroutine.
type Recorder struct {
	ggmlhooks.NoMachine
	o       Options
	graphs  map[uint64]*graph
	newest  map[uint32]uint64 // newest graph of each context
	ctxs    map[uint32]*context
	rows    ggmlhooks.RowJoiner
	open    map[uint64]*execution // begun and not ended
	settled []settled             // by first token; waiting for those before them
	use     Use
	cuts    cutProbes
	free    []*execution
	packet  stream.Packet
	scratch []int64
	// refusing: nothing is written any more, and what comes is counted.
	refusing bool
}

// graph is a description with what each packet of a node repeats.
type graph struct {
	*ggmlhooks.Graph
	names           []string // of nodes' packets
	leafs           []string // of leafs' packets
	leafOccurrences []int
}

// execution is one micro-batch with its rows.
type execution struct {
	stream.Execution
	g       *graph
	phase   ggmlhooks.Phase
	ns      int64 // graph entry to graph end
	held    bool  // undecided, and nothing of it was written yet
	written bool  // the stream has it
	named   bool  // its tokens were handed on
	flow    Flow
	packets []heldPacket
	begun   []ggmlhooks.RequestBegin // requests that begin with it
}

// heldPacket is a packet that waits in the tap's slots.
type heldPacket struct {
	packet  stream.Packet
	data    []byte
	takes   int64 // bytes of slots
	release func()
}

// context is what is known of a llama_context.
type context struct {
	pending []*execution // undecided, in order
	running running
}

// Use is what a run did, by phase.
type Use struct {
	Graphs map[ggmlhooks.Phase]int64
	Rows   map[ggmlhooks.Phase]int64
	NS     map[ggmlhooks.Phase]int64 // graph entry to graph end, measured
	// AloneRows and AloneNS are those of executions whose tokens are all of the phase: rates are of these, for of a
	// mixed one nobody knows which tokens took how long.
	AloneRows, AloneNS map[ggmlhooks.Phase]int64

	Requests int64       // that began
	Held     int64       // bytes held back now, of slots
	FirstNS  int64       // monotonic time of the run's first graph entry, 0 = none
	LastNS   int64       // monotonic time of the run's last graph end
	CutNS    int64       // what one cut of a graph costs, the median of what was measured; 0 = not measured
	Run      Flow        // of executions that were the run
	Setup    Flow        // of those that were set-up
	Attached []Attention // what readers need to recompute attention maps
}

// Flow is what became of the selected tensors of executions, and what recording them cost the model. Of executions
// that have ended, Selected is the sum of Written, Refused, Discarded and Losses.
type Flow struct {
	Selected  ggmlhooks.Count // computed and wanted
	Written   ggmlhooks.Count // handed to the stream
	Refused   ggmlhooks.Count // captured, and not written because recording had failed or stopped
	Discarded ggmlhooks.Count // captured and thrown away, because they were set-up
	Losses    map[string]ggmlhooks.Count
	OwnNS     int64 // the tap on the model's threads
	WaitNS    int64 // the model waiting for the recording
	Cuts      int64 // how often ggml stopped within a graph because of the tap
}

// Add adds another flow.
func (f *Flow) Add(g *Flow) {
	f.Selected.Add(g.Selected)
	f.Written.Add(g.Written)
	f.Refused.Add(g.Refused)
	f.Discarded.Add(g.Discarded)
	for cause, n := range g.Losses {
		f.lose(cause, n)
	}
	f.OwnNS, f.WaitNS, f.Cuts = f.OwnNS+g.OwnNS, f.WaitNS+g.WaitNS, f.Cuts+g.Cuts
}

// Since returns what came since an earlier state of the same flow.
func (f *Flow) Since(g *Flow) Flow {
	since := Flow{
		Selected: f.Selected.Minus(g.Selected), Written: f.Written.Minus(g.Written), Refused: f.Refused.Minus(g.Refused),
		Discarded: f.Discarded.Minus(g.Discarded), OwnNS: f.OwnNS - g.OwnNS, WaitNS: f.WaitNS - g.WaitNS,
		Cuts: f.Cuts - g.Cuts,
	}
	for cause, n := range f.Losses {
		if n = n.Minus(g.Losses[cause]); n != (ggmlhooks.Count{}) {
			since.lose(cause, n)
		}
	}
	return since
}

func (f *Flow) lose(cause string, n ggmlhooks.Count) {
	if f.Losses == nil {
		f.Losses = map[string]ggmlhooks.Count{}
	}
	sum := f.Losses[cause]
	sum.Add(n)
	f.Losses[cause] = sum
}

// count is one captured tensor of some bytes.
func count(data []byte) ggmlhooks.Count { return ggmlhooks.Count{Packets: 1, Bytes: uint64(len(data))} }

// NewRecorder makes a recorder.
func NewRecorder(o Options) *Recorder {
	return &Recorder{
		o: o, graphs: map[uint64]*graph{}, newest: map[uint32]uint64{}, ctxs: map[uint32]*context{}, open: map[uint64]*execution{},
		use: Use{
			Graphs: map[ggmlhooks.Phase]int64{}, Rows: map[ggmlhooks.Phase]int64{}, NS: map[ggmlhooks.Phase]int64{},
			AloneRows: map[ggmlhooks.Phase]int64{}, AloneNS: map[ggmlhooks.Phase]int64{},
		},
	}
}

// Use returns what the run did so far. Its maps are the recorder's.
func (r *Recorder) Use() Use {
	use := r.use
	use.CutNS = r.cuts.median()
	return use
}

// Context notes how a context cuts its batches. Whoever keeps metadata listens for itself.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	r.rows.Context(c)
	return nil
}

// Graph keeps a description until its context has a newer one and nothing of it is open.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	if old, ok := r.newest[g.Ctx]; ok {
		delete(r.graphs, old)
	}
	r.newest[g.Ctx] = g.ID
	known := &graph{Graph: g, names: packetNames(g)}
	known.leafs, known.leafOccurrences = leafNames(g)
	r.graphs[g.ID] = known
	r.noteAttention(g)
	return nil
}

func (r *Recorder) context(number uint32) *context {
	c := r.ctxs[number]
	if c == nil {
		c = &context{}
		r.ctxs[number] = c
	}
	return c
}

// Call notes the program's batch.
func (r *Recorder) Call(c *ggmlhooks.Call) error {
	r.rows.Call(c)
	return nil
}

// Exec begins a micro-batch.
func (r *Recorder) Exec(e *ggmlhooks.Exec) error {
	g := r.graphs[e.Graph]
	if g == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ggmlhooks.ErrDesync, e.Number, e.Graph)
	}
	x := r.execution()
	x.g = g
	x.Execution.Exec, x.Execution.Graph, x.Execution.Ctx = e.Number, e.Graph, e.Ctx
	x.MonoNS, x.TimeNS = e.MonoNS, e.MonoNS+r.o.UnixOffset
	x.TokenFirst = e.TokenFirst
	ctx := r.context(e.Ctx)
	x.Rows, x.begun, x.phase = r.rows.Join(x.Rows, x.begun, e)
	x.Phase = x.phase
	x.held = e.Provisional
	r.open[e.Number] = x
	if x.held {
		ctx.pending = append(ctx.pending, x)
		return nil
	}
	return r.begin(x)
}

func (r *Recorder) execution() *execution {
	if n := len(r.free); n > 0 {
		x := r.free[n-1]
		r.free = r.free[:n-1]
		rows, packets, begun := x.Rows[:0], x.packets[:0], x.begun[:0]
		*x = execution{packets: packets, begun: begun}
		x.Rows = rows
		return x
	}
	return &execution{}
}

// begin writes an execution's rows, and what was held back of it.
func (r *Recorder) begin(x *execution) (err error) {
	x.held = false
	if !r.refusing {
		err = r.appendExecution(x)
		x.written = err == nil
	}
	for i := range x.packets {
		p := &x.packets[i]
		r.use.Held -= p.takes
		if !x.written || err != nil {
			p.release()
			x.flow.Refused.Add(count(p.data))
			continue
		}
		err = r.write(x, &p.packet, p.data, p.release)
	}
	clear(x.packets)
	x.packets = x.packets[:0]
	return err
}

// write hands a packet to the stream.
func (r *Recorder) write(x *execution, p *stream.Packet, data []byte, release func()) error {
	n := count(data)
	if err := r.o.Stream.Append(p, data, release); err != nil {
		x.flow.Refused.Add(n)
		return err
	}
	x.flow.Written.Add(n)
	return nil
}

// appendExecution writes which requests begin with an execution, and then the execution.
func (r *Recorder) appendExecution(x *execution) error {
	for _, b := range x.begun {
		if err := r.o.Stream.AppendRequest(b); err != nil {
			return err
		}
	}
	return r.o.Stream.AppendExecution(&x.Execution)
}

// ExecEnd ends a micro-batch.
func (r *Recorder) ExecEnd(e ggmlhooks.ExecEnd) error {
	x := r.open[e.Number]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	delete(r.open, e.Number)
	x.ns = e.MonoNS - x.MonoNS
	x.flow.Selected.Add(e.Selected)
	for _, l := range e.Losses {
		x.flow.lose(l.Cause, l.Count)
	}
	x.flow.OwnNS, x.flow.WaitNS, x.flow.Cuts = e.OwnNS, e.WaitNS, e.Cuts
	r.cuts.add(e.CutNS)
	pending := r.pending(x)
	if e.Async && e.Status == 0 {
		r.context(x.Execution.Ctx).running.add(x, pending)
	}
	if pending {
		return nil
	}
	err := r.settle(x, x.phase)
	r.free = append(r.free, x)
	return errors.Join(err, r.flushTokens(), r.commit())
}

func (r *Recorder) commit() error {
	if r.refusing {
		return nil
	}
	return r.o.Stream.Commit()
}

func (r *Recorder) pending(x *execution) bool {
	for _, p := range r.context(x.Execution.Ctx).pending {
		if p == x {
			return true
		}
	}
	return false
}

// Resolve decides about everything that a context's executions up to e.Exec have left open.
func (r *Recorder) Resolve(e ggmlhooks.Resolve) error {
	ctx := r.context(e.Ctx)
	n := 0
	for n < len(ctx.pending) && ctx.pending[n].Execution.Exec <= e.Exec {
		n++
	}
	if n == 0 {
		return nil
	}
	decided := ctx.pending[:n]
	var errs []error
	written := stream.Resolution{Ctx: e.Ctx, Phase: ggmlhooks.PhaseSetup}
	if e.Discarded {
		r.rows.Forget(e.Ctx)
	}
	for _, x := range decided {
		ctx.running.decide(x, e.Discarded)
		if e.Discarded {
			r.discard(x, &written)
		} else if x.held {
			errs = append(errs, r.begin(x))
		}
		if r.open[x.Execution.Exec] == nil { // else it is settled when it ends
			errs = append(errs, r.settle(x, x.phase))
			r.free = append(r.free, x)
		}
	}
	if written.FirstExec != 0 {
		errs = append(errs, r.o.Stream.AppendResolution(written))
	}
	ctx.pending = append(ctx.pending[:0], ctx.pending[n:]...)
	return errors.Join(append(errs, r.flushTokens(), r.commit())...)
}

// SeqChange notes what the program did to sequences.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.rows.SeqChange(c)
	return nil
}

// Refuse ends writing, after a failure or because recording stops. The tokens of what was written are handed on.
// What comes from here on is counted: tokens by phase, tensors as refused. What is undecided and was written in
// part is the run, as the stream says; other executions are decided about as before.
func (r *Recorder) Refuse() error {
	if r.refusing {
		return nil
	}
	var errs []error
	for _, ctx := range r.ctxs {
		for _, x := range ctx.pending {
			if x.written {
				errs = append(errs, r.name(x))
			}
		}
	}
	for _, x := range r.open {
		if x.written {
			errs = append(errs, r.name(x))
		}
	}
	errs = append(errs, r.FlushTokens(), r.o.Stream.Commit())
	r.refusing = true
	for number, ctx := range r.ctxs {
		if n := len(ctx.pending); n > 0 && slices.ContainsFunc(ctx.pending, func(x *execution) bool { return x.written }) {
			errs = append(errs, r.Resolve(ggmlhooks.Resolve{Ctx: number, Exec: ctx.pending[n-1].Execution.Exec}))
		}
	}
	return errors.Join(errs...)
}

// Whole reports whether everything of which something was written was written to its end and is decided. Then,
// after FlushTokens, the stream may end and another one go on.
func (r *Recorder) Whole() bool {
	for _, x := range r.open {
		if !x.held {
			return false
		}
	}
	for _, ctx := range r.ctxs {
		for _, x := range ctx.pending {
			if !x.held {
				return false
			}
		}
	}
	return true
}

// discard makes an execution set-up: what is held of it is dropped, what was written is marked.
func (r *Recorder) discard(x *execution, written *stream.Resolution) {
	x.phase = ggmlhooks.PhaseSetup
	for i := range x.packets {
		r.use.Held -= x.packets[i].takes
		x.flow.Discarded.Add(count(x.packets[i].data))
		x.packets[i].release()
	}
	clear(x.packets)
	x.packets = x.packets[:0]
	if !x.written {
		return
	}
	if written.FirstExec == 0 {
		written.FirstExec = x.Execution.Exec
	}
	written.LastExec = x.Execution.Exec
}

// Relieve writes what is held back, because too much is, or the model cannot go on without its slots. It stays
// undecided.
func (r *Recorder) Relieve() error {
	if r.use.Held == 0 {
		return nil
	}
	for _, ctx := range r.ctxs {
		for _, x := range ctx.pending {
			if x.held {
				if err := r.begin(x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Finish decides about what is still open when the model is gone: nothing was thrown away, so it was the run. An
// execution that did not end, because the model was killed, keeps what was captured of it.
func (r *Recorder) Finish() error {
	var errs []error
	for number, ctx := range r.ctxs {
		if n := len(ctx.pending); n > 0 {
			last := ctx.pending[n-1].Execution.Exec
			errs = append(errs, r.Resolve(ggmlhooks.Resolve{Ctx: number, Exec: last}))
		}
	}
	for number, x := range r.open {
		if x.held {
			continue
		}
		x.flow.Selected = x.flow.Written
		x.flow.Selected.Add(x.flow.Refused)
		errs = append(errs, r.settle(x, x.phase))
		delete(r.open, number)
	}
	return errors.Join(append(errs, r.flushTokens(), r.commit())...)
}
