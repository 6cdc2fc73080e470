package capture

import (
	"errors"
	"fmt"

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
	// HoldBytes bounds what is held back undecided; 0 = no bound. Beyond it everything is written. What is held is counted in whole multiples
	// of HoldUnit bytes, a slot's size, so that when that is does not depend on how fast anybody is.
	HoldBytes, HoldUnit int64
}

// ErrDesync occurs when the tap reports something of a graph or an execution that it did not announce.
var ErrDesync = errors.New("the tap's reports do not fit together")

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
	free    []*execution
	packet  stream.Packet
	scratch []int64
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
	Graphs   map[ggmlhooks.Phase]int64
	Rows     map[ggmlhooks.Phase]int64
	NS       map[ggmlhooks.Phase]int64 // graph entry to graph end, measured
	Requests int64                     // that began
	Held     int64                     // bytes held back now, of slots
	FirstNS  int64                     // monotonic time of the run's first graph entry, 0 = none
	LastNS   int64                     // monotonic time of the run's last graph end
	Dropped  int64                     // tensors that the tap reported as lost
	Setup    int64                     // captured tensors of set-up, thrown away
	GivenUp  Count                     // captured tensors that were held back when recording failed
	Attached []Attention               // what readers need to recompute attention maps
}

// Count is a number of tensors, and their bytes.
type Count struct{ Packets, Bytes uint64 }

// NewRecorder makes a recorder.
func NewRecorder(o Options) *Recorder {
	return &Recorder{
		o: o, graphs: map[uint64]*graph{}, newest: map[uint32]uint64{}, ctxs: map[uint32]*context{}, open: map[uint64]*execution{},
		use: Use{Graphs: map[ggmlhooks.Phase]int64{}, Rows: map[ggmlhooks.Phase]int64{}, NS: map[ggmlhooks.Phase]int64{}},
	}
}

// Use returns what the run did so far. Its maps are the recorder's.
func (r *Recorder) Use() Use { return r.use }

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

// CallEnd ends nothing: micro-batches are framed by themselves.
func (r *Recorder) CallEnd(ggmlhooks.CallEnd) error { return nil }

// Exec begins a micro-batch.
func (r *Recorder) Exec(e *ggmlhooks.Exec) error {
	g := r.graphs[e.Graph]
	if g == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ErrDesync, e.Number, e.Graph)
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

// begin writes an execution's rows.
func (r *Recorder) begin(x *execution) error {
	x.held = false
	if err := r.appendExecution(x); err != nil {
		r.giveUp(x.packets)
		x.packets = x.packets[:0]
		return err
	}
	for i := range x.packets {
		p := &x.packets[i]
		r.use.Held -= p.takes
		if err := r.o.Stream.Append(&p.packet, p.data, p.release); err != nil {
			r.giveUp(x.packets[i+1:])
			clear(x.packets)
			x.packets = x.packets[:0]
			return err
		}
	}
	clear(x.packets)
	x.packets = x.packets[:0]
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
	r.use.Dropped += int64(e.Lost)
	x.ns = e.MonoNS - x.MonoNS
	pending := r.pending(x)
	if e.Async && e.Status == 0 {
		r.context(x.Execution.Ctx).running.add(x, pending)
	}
	if pending {
		return nil
	}
	err := r.settle(x, x.phase)
	r.free = append(r.free, x)
	return errors.Join(err, r.tell(), r.o.Stream.Commit())
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
	return errors.Join(append(errs, r.tell(), r.o.Stream.Commit())...)
}

// SeqChange notes what the program did to sequences.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.rows.SeqChange(c)
	return nil
}

// Close gives up what is held back, after a failure or because recording stops: it is counted and not written. Finish may follow, and
// settles what was written.
func (r *Recorder) Close() {
	for _, ctx := range r.ctxs {
		written := ctx.pending[:0]
		for _, x := range ctx.pending {
			if !x.held {
				written = append(written, x)
				continue
			}
			r.giveUp(x.packets)
			x.packets = x.packets[:0]
			delete(r.open, x.Execution.Exec)
		}
		ctx.pending = written
	}
}

// Whole reports whether everything of which something was written was written to its end and is decided. Then, after TellAll, the stream
// may end and another one go on.
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
	if x.held {
		r.use.Setup += int64(len(x.packets))
		r.dropHeld(x.packets)
		x.packets = x.packets[:0]
		return
	}
	if written.FirstExec == 0 {
		written.FirstExec = x.Execution.Exec
	}
	written.LastExec = x.Execution.Exec
}

// giveUp drops held packets that were to be written.
func (r *Recorder) giveUp(packets []heldPacket) {
	for i := range packets {
		r.use.GivenUp.Packets++
		r.use.GivenUp.Bytes += uint64(len(packets[i].data))
	}
	r.dropHeld(packets)
}

func (r *Recorder) dropHeld(packets []heldPacket) {
	for i := range packets {
		r.use.Held -= packets[i].takes
		packets[i].release()
		packets[i] = heldPacket{}
	}
}

// Relieve writes what is held back, because too much is, or the model cannot go on without its slots. It stays undecided.
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

// Finish decides about what is still open when the model is gone: nothing was thrown away, so it was the run. An execution that
// did not end, because the model was killed, keeps what was captured of it.
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
		errs = append(errs, r.settle(x, x.phase))
		delete(r.open, number)
	}
	return errors.Join(append(errs, r.tell(), r.o.Stream.Commit())...)
}
