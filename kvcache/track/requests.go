package track

import (
	"io"
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// RequestOptions says how Requests are recorded.
type RequestOptions struct {
	// Done takes each request that has ended, in that order, and does not keep it. Its errors are the recorder's.
	Done func(*kvcache.Request) error
	// Changed takes the tokens of a sequence, by position, after they changed from a position on, and does not keep
	// them; one below 0 is unknown. Those that were computed with adapters or vectors, or whose memory is a recurrent
	// state, are left out. nil: nobody wants them.
	Changed func(ctx uint32, seq int32, from int, tokens []int32)
	// Segment is the number of the segment that is written; nil: it is not wanted.
	Segment func() int
	// Keep is how many tokens of each request's prompt and answer it has; 0: none.
	Keep int
}

// Requests follows requests as they happen. It is for one goroutine.
type Requests struct {
	ggmlhooks.NoMachine
	contexts
	arrivals
	o       RequestOptions
	pending []*request // that left their slots, and whose answers were not seen yet
	picked  lineKind   // how the slot of the next request was chosen
	next    int64
	closed  bool
}

// contexts are those of a program.
type contexts struct {
	hasher kvcache.PrefixHasher
	ctxs   map[uint32]*slotContext
	served *slotContext // whose sequences are slots: the program gives them samplers; nil: none yet
}

// slotContext is a llama_context.
type slotContext struct {
	number    uint32
	slots     map[int32]*slot
	call      []ggmlhooks.CallRow // the rows of its last call
	cellBytes int64               // of keys and values of a token, all layers
	window    bool
	recurrent bool
	made      made
	history   history
	saves     saves
	hasher    *kvcache.PrefixHasher
}

// made is what computes cells, apart from tokens.
type made struct {
	steer    uint32 // number of the vectors that are added to the residual stream
	adapters uint64 // stands for LoRA adapters with their scales; 0: none
}

// plain reports whether nothing was added: no vectors, which a context may not even take, and no adapters.
func (m made) plain() bool { return m.adapters == 0 && (m.steer == 0 || m.steer == math.MaxUint32) }

// slot is a sequence.
type slot struct {
	seq      int32
	cells    cells
	made     made // what they were computed with
	now      *request
	launchNS int64   // when a sampler was set for the request that comes
	losses   []*lost // what made room for the request that comes
	calls    int     // rows in the last call
	chosen   int     // tokens from them
	from     int32   // sequence whose prompt it shares since that; -1: none
	changed  int32   // first position whose token changed since that was reported; -1: none
}

// request is one that goes on.
type request struct {
	kvcache.Request
	slot      *slot
	before    []int32 // what its slot held
	picked    lineKind
	busy      []int32       // slots that were taken when it got its own
	held      map[int32]int // how many tokens each slot held then
	hash      uint64
	unseen    bool // which tokens its prompt has was not seen: its slot was restored from a file
	ask       *ask
	x         *slotContext
	own       int64   // tokens of the prompt that its slot held; -1: that is not why some were computed again
	gone      *lost   // why some were, where it is that; nil: it is not
	losses    []*lost // what others lost for it, as far as is known
	steered   bool    // what its slot held was computed with other vectors
	adapters  bool    // … or adapters
	failed    bool
	long      int64   // tokens of a prompt that failed because it is too long; -1: that is not known
	embedded  []int32 // the prompt whose embedding was read; nil: none was
	loggedNS  int64   // when the server logged that it got its slot; 0: it did not
	timed     bool    // the server logged how many tokens its answer has
	cancelled bool
	ended     bool   // its last token ends generation
	answer    uint32 // ggmlhooks.ServedStop and so on; 0: not seen
}

// NewRequests makes a recorder.
func NewRequests(o RequestOptions) *Requests {
	if o.Segment == nil {
		o.Segment = func() int { return 0 }
	}
	return &Requests{o: o, contexts: contexts{ctxs: map[uint32]*slotContext{}}, arrivals: arrivals{heads: heads{}}}
}

// running are the requests that have a slot.
func (r *contexts) running(yield func(*request) bool) {
	for _, x := range r.ctxs {
		for _, s := range x.slots {
			if s.now != nil && !yield(s.now) {
				return
			}
		}
	}
}

func (r *contexts) context(number uint32) *slotContext {
	x := r.ctxs[number]
	if x == nil {
		x = &slotContext{number: number, slots: map[int32]*slot{}, hasher: &r.hasher}
		r.ctxs[number] = x
	}
	return x
}

func (x *slotContext) slot(seq int32) *slot {
	s := x.slots[seq]
	if s == nil {
		s = &slot{seq: seq, from: -1}
		x.slots[seq] = s
	}
	return s
}

// Context notes what a context's memory can do.
func (r *contexts) Context(c *ggmlhooks.Context) error {
	x := r.context(c.Number)
	x.recurrent, x.window = c.Recurrent || c.Hybrid, c.Window > 0
	return nil
}

// Graph adds up what keys and values of a token take.
func (r *contexts) Graph(g *ggmlhooks.Graph) error {
	n := int64(0)
	for i := range g.Leafs {
		if part, _, ok := ggmlhooks.CacheTensor(g.Leafs[i].Name); ok && (part == 'k' || part == 'v') {
			n += int64(g.Leafs[i].NB[1])
		}
	}
	x := r.context(g.Ctx)
	x.cellBytes = max(x.cellBytes, n)
	return nil
}

// Call keeps the rows of a batch: tokens are chosen from them.
func (r *Requests) Call(c *ggmlhooks.Call) error {
	x := r.context(c.Ctx)
	x.call = append(x.call[:0], c.Rows...)
	for _, s := range x.slots {
		s.calls, s.chosen, s.from = 0, 0, -1
	}
	for i := range c.Rows {
		s := x.slot(c.Rows[i].Seqs[0])
		s.calls++
	}
	for _, s := range x.slots {
		if q := s.now; q != nil && q.Output > 0 && s.calls > 1 {
			q.Drafted += int64(s.calls - 1)
		}
	}
	return nil
}

// undraft takes back that the rows of the last call are drafts: they are the prompt of the next request.
func (s *slot) undraft() {
	if q := s.now; q != nil && q.Output > 0 && s.calls > 1 {
		q.Drafted -= int64(s.calls - 1)
	}
}

// owner reports whether a context's sequences are slots: those of a context without samplers are a draft model's, where
// another one has some.
func (r *contexts) owner(x *slotContext) bool { return r.served == nil || r.served == x }

// Begin takes in the rows of an execution.
func (r *Requests) Begin(e *ggmlhooks.Execution) error {
	x := r.context(e.Ctx)
	if !r.owner(x) {
		return nil
	}
	x.made.steer = e.Steer
	for _, b := range e.Begun {
		s := x.slot(b.Seq)
		if s.now == nil || r.served == nil {
			s.undraft()
			if err := r.end(s, e.MonoNS); err != nil {
				return err
			}
			r.launch(x, s, -1)
		}
		s.now.Number = int64(b.Number)
	}
	x.blame(e)
	for i := range e.Rows {
		row := &e.Rows[i]
		for k, seq := range row.Seqs {
			s := x.slot(seq)
			if q := s.now; q != nil && k == 0 {
				q.compute(x, row, e.MonoNS, r.served != nil)
			}
			s.cells.set(row.Pos, row.Token)
			s.touch(row.Pos)
			if s.made != x.made {
				s.made = x.made
				s.touch(0)
			}
		}
	}
	x.report(r.o.Changed)
	return nil
}

// blame finds for whom room was made, before an execution, in slots that nobody has yet: for the request that computes,
// where it is the only one. A slot is cleared for its own next request right before that comes.
func (x *slotContext) blame(e *ggmlhooks.Execution) {
	for _, s := range x.slots {
		if s.now != nil || s.launchNS != 0 || len(s.losses) == 0 {
			continue
		}
		if q := x.alone(e); q != nil {
			q.blame(s.losses)
		}
		s.losses = nil
	}
}

// alone is the only request that computes in an execution; nil: there are several, or none.
func (x *slotContext) alone(e *ggmlhooks.Execution) (only *request) {
	for i := range e.Rows {
		for _, seq := range e.Rows[i].Seqs {
			q := x.slot(seq).now
			if q == nil || only != nil && q != only {
				return nil
			}
			only = q
		}
	}
	return only
}

// blame says that it was for the request that others lost something.
func (q *request) blame(losses []*lost) {
	for _, l := range losses {
		l.by = q.ID
	}
	q.losses = append(q.losses, losses...)
}

// touch notes that a slot's tokens changed from a position on.
func (s *slot) touch(pos int32) {
	if pos = max(pos, 0); s.changed < 0 || pos < s.changed {
		s.changed = pos
	}
}

// report hands on what slots hold, where it changed.
func (x *slotContext) report(changed func(ctx uint32, seq int32, from int, tokens []int32)) {
	if changed == nil {
		return
	}
	for seq, s := range x.slots {
		if s.changed < 0 {
			continue
		}
		tokens := s.cells
		if x.recurrent || !s.made.plain() {
			tokens = nil
		}
		changed(x.number, seq, int(s.changed), tokens)
		s.changed = -1
	}
}

// compute takes in a row of the request. Which tokens a program chose is known of a server; the rows that another one
// generated are no prompt, by their phase.
func (q *request) compute(x *slotContext, row *ggmlhooks.Row, ns int64, served bool) {
	q.Taken++
	if q.Output != 0 {
		return
	}
	if !served && row.Phase == ggmlhooks.PhaseDecode {
		q.Prompt, q.Output = q.Cached+q.Computed, -1
		return
	}
	if q.Computed == 0 {
		q.Cached = max(int64(row.Pos), 0)
		if len(q.before) > 0 {
			q.steered, q.adapters = q.slot.made.steer != x.made.steer, q.slot.made.adapters != x.made.adapters
		}
		if q.PromptNS == 0 {
			q.PromptNS = ns
		}
	}
	q.Computed++
}

// End does nothing: a request's rows are there when an execution begins.
func (r *Requests) End(*ggmlhooks.Execution) error { return nil }

// Resolve forgets what a context did that was set-up.
func (r *Requests) Resolve(e ggmlhooks.Resolve) error {
	if x := r.context(e.Ctx); e.Discarded {
		for _, s := range x.slots {
			if s.now != nil {
				r.next--
			}
			*s = slot{seq: s.seq, from: -1}
		}
		x.history = history{}
		x.report(r.o.Changed)
	}
	return nil
}

// SeqChange takes in what the program did to sequences.
func (r *Requests) SeqChange(c *ggmlhooks.SeqChange) error {
	x := r.context(c.Ctx)
	switch c.Kind {
	case ggmlhooks.SeqSampler:
		r.served = x
		s := x.slot(c.Seq)
		if s.now == nil {
			s.launchNS = c.MonoNS
			return nil
		}
		return r.end(s, c.MonoNS)
	case ggmlhooks.SeqCopy:
		to := x.slot(c.To)
		from := x.slot(c.Seq)
		to.cells, to.made, to.changed = slices.Clone(from.cells), from.made, 0
		x.report(r.o.Changed)
		to.from = c.Seq
		return nil
	}
	for seq, s := range x.slots {
		if (c.Seq == -1 || c.Seq == seq) == (c.Kind == ggmlhooks.SeqKeep) {
			continue
		}
		s.change(x, c)
	}
	x.report(r.o.Changed)
	return nil
}

// change takes in what was done to a slot's cells.
func (s *slot) change(x *slotContext, c *ggmlhooks.SeqChange) {
	first, end := c.First, c.End
	const partial = 1 // llama.h: of what cannot be cut back otherwise
	switch c.Kind {
	case ggmlhooks.SeqAdd:
		s.cells.move(first, end, c.Value)
		s.touch(first + min(c.Value, 0))
		return
	case ggmlhooks.SeqDivide:
		s.touch(0)
		s.cells.remove(0, -1) // nobody knows which tokens share a position then
		return
	case ggmlhooks.SeqRestore:
		if c.Value&partial != 0 {
			return
		}
		first, end = 0, -1
	case ggmlhooks.SeqKeep:
		first, end = 0, -1
	}
	q := s.now
	if q != nil && q.Computed == 0 && q.PromptNS == 0 {
		q.PromptNS = c.MonoNS
	}
	from, to := s.cells.span(first, end)
	shift := to < len(s.cells)
	if from < to && (q == nil || q.Output == 0 || shift) { // else drafts were rejected
		l := &lost{tokens: slices.Clone(s.cells), kept: int32(from), seq: s.seq, atNS: c.MonoNS, by: -1, shift: shift}
		if q != nil {
			l.by = q.ID
		} else {
			s.losses = append(s.losses, l)
		}
		x.history.add(l)
	}
	s.touch(first)
	if n := s.cells.remove(first, end); q != nil {
		q.Freed += n
		if shift {
			q.Shifts++
		}
	}
}

// launch begins a request in a slot.
func (r *Requests) launch(x *slotContext, s *slot, task int64) {
	q := &request{Request: kvcache.NewRequest(), slot: s, x: x, own: -1, long: -1, before: slices.Clone(s.cells),
		picked: r.picked, held: map[int32]int{}}
	q.ID, q.Ctx, q.Seq, q.Task, q.LaunchNS = r.next, int64(x.number), int64(s.seq), task, s.launchNS
	for _, n := range []*int64{&q.Computed, &q.Output, &q.Drafted, &q.Accepted, &q.Taken, &q.Freed, &q.Shifts} {
		*n = 0
	}
	q.blame(s.losses)
	for _, other := range x.slots {
		q.held[other.seq] = len(other.cells)
		if other.now != nil {
			q.busy = append(q.busy, other.seq)
		}
	}
	q.FirstSegment = r.o.Segment()
	r.next++
	r.picked, s.losses, s.launchNS, s.now = lineOther, nil, 0, q
}

var _ interface {
	io.Closer
	ggmlhooks.Live
	ggmlhooks.Called
	ggmlhooks.Server
	ggmlhooks.Sequenced
	ggmlhooks.Contexts
	ggmlhooks.Graphs
} = (*Requests)(nil)
