package capture

import (
	"cmp"
	"errors"
	"math"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// Hot path: one packet per captured tensor, no allocation in steady state, no copy (sampling excepted).

// Stream is where packets go: a stream.Writer.
type Stream interface {
	Append(p *stream.Packet, data []byte, release func()) error
	AppendExecution(e *stream.Execution) error
	AppendRequest(b ggmlhooks.RequestBegin) error
	AppendResolution(r stream.Resolution) error
	AppendStateLoad(l stream.StateLoad) error
	Commit() error
}

// Tokens is where the token rows of the run go, in order.
type Tokens interface {
	Append(ctx uint32, row *ggmlhooks.Row) error
}

// Options says how a Recorder works.
type Options struct {
	Selection ggmlhooks.Selection
	// Selected is the selection of a number that graphs are marked by; nil, or a nil one: it is Selection.
	Selected func(number uint32) *ggmlhooks.Selection
	Stream   Stream
	Tokens   Tokens // nil: nowhere
	// UnixOffset is what must be added to a monotonic time to make it a Unix time, in nanoseconds.
	UnixOffset int64
}

// Recorder is a [ggmlhooks.Tensors] that writes a stream. It is for one goroutine.
type Recorder struct {
	o           Options
	plans       ggmlhooks.Plans[*graph]
	open        map[uint64]*execution // started and not settled
	free        []*execution
	tokens      tokenOrder
	resolutions []stream.Resolution // of executions that were settled since the last commit
	settled     uint64              // the newest execution that was
	use         Use
	cuts        cutProbes
	paths       paths
	packet      stream.Packet
	exec        stream.Execution
	scratch     []int64
	mixed       map[uint32]bool // contexts whose last generated tokens were computed together with a prompt's
	// refusing: nothing is written any more, and what comes is counted.
	refusing bool
}

// execution is the state of an execution's tensors.
type execution struct {
	g       *graph // nil: it was not started
	written bool   // the stream has it
	failed  bool   // the stream could not take one of its tensors
	flow    Flow
}

// NewRecorder makes a recorder.
func NewRecorder(o Options) *Recorder {
	if o.Selected == nil {
		o.Selected = func(uint32) *ggmlhooks.Selection { return nil }
	}
	return &Recorder{o: o, open: map[uint64]*execution{}, tokens: tokenOrder{to: o.Tokens}, paths: paths{},
		use: newUse(), mixed: map[uint32]bool{}}
}

// Use returns what the run did so far. Its maps are the recorder's.
func (r *Recorder) Use() Use {
	use := r.use
	use.CutNS, use.Paths = r.cuts.median(), r.paths.list()
	return use
}

// SeqChange counts the drafts that the program takes back, and writes that it put a saved state back.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	r.use.Rejected += int64(c.Rejected)
	if !r.mixed[c.Ctx] {
		r.use.AloneRows[ggmlhooks.PhaseDecode] -= int64(c.Rejected)
	}
	if c.Kind == ggmlhooks.SeqRestore && !r.refusing {
		return r.o.Stream.AppendStateLoad(stream.StateLoad{Ctx: c.Ctx, MonoNS: c.MonoNS})
	}
	return nil
}

// Graph works out what each packet of a node repeats.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	known := newGraph(g)
	r.plans.Put(g, known)
	known.attentions(r.use.attach)
	r.use.addPoints(known, cmp.Or(r.o.Selected(g.Selection), &r.o.Selection))
	return nil
}

// stateOf returns the outcome of an execution so far.
func (r *Recorder) stateOf(x *ggmlhooks.Execution) *execution {
	e := r.open[x.Number]
	if e == nil {
		if n := len(r.free); n > 0 {
			e, r.free = r.free[n-1], r.free[:n-1]
		} else {
			e = &execution{}
		}
		r.open[x.Number] = e
	}
	return e
}

// Start writes which requests begin with an execution, and then the execution.
func (r *Recorder) Start(x *ggmlhooks.Execution) error {
	e := r.stateOf(x)
	e.g = r.plans.Of(x)
	if r.refusing {
		return nil
	}
	for _, b := range x.Begun {
		if err := r.o.Stream.AppendRequest(b); err != nil {
			return err
		}
	}
	r.exec = stream.Execution{
		Exec: x.Number, Graph: x.Graph.ID, Ctx: x.Ctx, Phase: x.Phase, TimeNS: x.MonoNS + r.o.UnixOffset,
		MonoNS: x.MonoNS, TokenFirst: x.TokenFirst, Rows: x.Rows,
	}
	err := r.o.Stream.AppendExecution(&r.exec)
	e.written = err == nil
	return err
}

// Tensor writes one captured piece, or the share of it that was asked for.
func (r *Recorder) Tensor(x *ggmlhooks.Execution, c *ggmlhooks.Capture) error {
	e := r.stateOf(x)
	if e.g == nil {
		taken := int(r.share(c).bytes)
		e.flow.Discarded.Add(count(taken))
		e.flow.Selected.Bytes -= uint64(len(c.Data) - taken)
		c.Release()
		return nil
	}
	if r.refusing || !e.written || e.failed {
		e.flow.Refused.Add(count(len(c.Data)))
		c.Release()
		return nil
	}
	p := &r.packet
	e.g.fill(p, x, c)
	p.TimeNS, p.MonoNS = c.MonoNS+r.o.UnixOffset, c.MonoNS
	data, release := c.Data, c.Release
	if s := r.share(c); s.width != 0 {
		data, release = r.sample(p, c, s), func() {}
		e.flow.Selected.Bytes -= uint64(len(c.Data) - len(data)) // what is wanted is the share
		c.Release()
	}
	if err := r.o.Stream.Append(p, data, release); err != nil {
		e.failed = true
		e.flow.Refused.Add(count(len(data)))
		return err
	}
	e.flow.Written.Add(count(len(data)))
	if c.Node >= 0 {
		r.paths.add(p.Name, p.Layer, c.Cut)
	}
	return nil
}

// Settle counts an execution as what it was, and takes its tokens in.
func (r *Recorder) Settle(x *ggmlhooks.Execution) error {
	e := r.stateOf(x)
	delete(r.open, x.Number)
	e.flow.end(x)
	r.cuts.add(x.End.CutNS)
	// Of what the program's end cut off nothing is known to be computed but what was captured.
	thrown := thrownAway(x) || x.CutOff && e.flow.Selected == ggmlhooks.Count{}
	r.use.add(x, &e.flow, thrown)
	if len(x.Rows) > 0 && ggmlhooks.OnePhase(x.Rows) != ggmlhooks.PhasePrefill {
		r.mixed[x.Ctx] = !hasOnePhase(x)
	}
	switch written := e.written && !r.refusing; {
	case written && thrown:
		last := len(r.resolutions) - 1
		if last < 0 || r.resolutions[last].Ctx != x.Ctx || r.resolutions[last].LastExec != r.settled {
			r.resolutions = append(r.resolutions, stream.Resolution{Ctx: x.Ctx, FirstExec: x.Number,
				Phase: ggmlhooks.PhaseSetup})
			last++
		}
		r.resolutions[last].LastExec = x.Number
	case written:
		r.tokens.add(x)
	}
	r.settled = x.Number
	*e = execution{}
	r.free = append(r.free, e)
	return nil
}

// thrownAway reports whether nothing was made of what an execution computed: it was set-up, or it failed.
func thrownAway(x *ggmlhooks.Execution) bool { return x.Phase == ggmlhooks.PhaseSetup || x.Failed() }

// Commit marks what turned out to be thrown away after it was written, and hands on the tokens before a number.
func (r *Recorder) Commit(before int64) error {
	if r.refusing {
		return nil
	}
	var failed error
	for _, resolution := range r.resolutions {
		failed = errors.Join(failed, r.o.Stream.AppendResolution(resolution))
	}
	r.resolutions = r.resolutions[:0]
	return errors.Join(failed, r.tokens.flush(before), r.o.Stream.Commit())
}

// Record counts the time that a device took behind the end of an execution. One that is recorded undecided counts as
// what it seems to be.
func (r *Recorder) Record(x *ggmlhooks.Execution) error {
	r.use.addDevice(x)
	return nil
}

// Refuse ends writing, after a failure or because recording stops. The tokens of what was written are handed on.
// What comes from here on is counted: tokens by phase, tensors as refused.
func (r *Recorder) Refuse(started []*ggmlhooks.Execution) error {
	if r.refusing {
		return nil
	}
	for _, x := range started {
		if r.stateOf(x).written {
			r.tokens.add(x)
		}
	}
	r.refusing = true
	err := r.FlushTokens()
	r.tokens.waiting = nil
	return errors.Join(err, r.o.Stream.Commit())
}

// Whole reports whether every execution of which something was written is settled. Then, after FlushTokens, the
// stream may end and another one continue.
func (r *Recorder) Whole() bool { return len(r.open) == 0 }

// FlushTokens hands on the tokens of every settled execution, whatever comes before them: the file that they belong to
// ends.
func (r *Recorder) FlushTokens() error { return r.tokens.flush(math.MaxInt64) }

// Close does nothing: the stream is closed by its owner, when the executions are settled.
func (r *Recorder) Close() error { return nil }

// share is how much of a piece is kept, where not all of it is.
type share struct {
	width       int // of an element in bytes, 0: all is kept
	total, keep int64
	bytes       int64
}

// share returns how much of a piece is kept. Elements of block-quantised types cannot be taken apart.
func (r *Recorder) share(c *ggmlhooks.Capture) share {
	width := elementBytes(c.Type)
	if r.o.Selection.Granularity != ggmlhooks.SampledSlices || c.Node < 0 || width == 0 {
		return share{bytes: int64(len(c.Data))}
	}
	total := int64(len(c.Data) / width)
	keep := ggmlhooks.SampleSize(total, r.o.Selection.SamplingRate)
	return share{width, total, keep, keep * int64(width)}
}

// sample copies a random share of a piece's elements, in their order.
func (r *Recorder) sample(p *stream.Packet, c *ggmlhooks.Capture, s share) []byte {
	p.SampleSeed = ggmlhooks.SampleSeed(r.o.Selection.Seed, c.Exec, c.Node, c.RowFirst+c.Block)
	p.SampleTotal = s.total
	r.scratch = label.SampleIndices(r.scratch[:0], p.SampleSeed, s.total, s.keep)
	data := make([]byte, 0, s.bytes)
	for _, i := range r.scratch {
		data = append(data, c.Data[int(i)*s.width:(int(i)+1)*s.width]...)
	}
	return data
}

// elementBytes is the size of an element of a ggml type, 0 for one that is stored in blocks. The numbers are ggml.h's.
func elementBytes(ggmlType int) int {
	switch ggmlType {
	case 0, 26: // F32, I32
		return 4
	case 1, 25, 30: // F16, I16, BF16
		return 2
	case 24: // I8
		return 1
	case 27, 28: // I64, F64
		return 8
	}
	return 0
}
