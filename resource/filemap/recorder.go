package filemap

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// hold is the delay before an event is assigned to a line where nobody calls ReportedUpTo: the tap's reports of
// executions arrive by another path. Slack is how long after that a line waits for events that began within it and end
// later.
const (
	hold  = 250 * time.Millisecond
	slack = 100 * time.Millisecond
)

// Bounds of memory: beyond them an event is put where it belongs as far as is known, and a line is written though
// something of it may follow.
const (
	maxPending = 1 << 18
	maxLines   = 4096
	maxHeld    = 64 // executions of which it is not decided whether they are set-up
	maxTokens  = 16
)

// DefaultTop is how many places a line lists.
const DefaultTop = 16

// RecorderOptions say where a Recorder writes. Files and Line must be given.
type RecorderOptions struct {
	Files *Files
	// Line is handed each line in the order of time. It is lent.
	Line func(*resource.WaitLine) error
	// Fault is handed each event; nil: not asked for. It is lent.
	Fault func(*resource.FaultLine) error
	// Top is how many places a line lists; 0 = DefaultTop.
	Top int
	// BeginNS is when the recording began, CLOCK_MONOTONIC.
	BeginNS int64
	// Intervals makes one line per time interval, by Interval, without graphs.
	Intervals bool
}

// Graph is an execution that begins.
type Graph struct {
	Ctx        uint32
	Exec       uint64
	Phase      string
	TokenFirst int64 // -1: it has none
	TokenCount int
	Tokens     []resource.WaitToken
	BeginNS    int64
	// Weights are the names of the weights that it reads, in the order of their first use. It is kept, not copied.
	Weights []string
	// Held keeps its line back until Decide.
	Held bool
}

// Recorder joins events to what was computed. Take and Upto are for one goroutine, the rest for others; all may run
// at once.
type Recorder struct {
	o  RecorderOptions
	mu sync.Mutex

	pending  []taken // in the order of their ends
	upto     int64   // all events up to here are known
	reported int64   // all executions that began up to here are known; 0: nobody says so
	put      int64   // events up to here are in their lines
	number   uint64

	lines   []*segment // by begin; the first is the oldest that is not written
	byExec  map[uint64]*segment
	touched map[int]bool // places that faulted
	total   sums
	late    uint64 // executions reported after their events were assigned
	strays  uint64 // events whose line was written before
	unseen  uint64 // requests whose end was not seen
	end     int64  // of the newest segment's execution
	closed  bool
	err     error
}

// taken is an event that waits to be put into a line, resolved while its process was there.
type taken struct {
	Event
	Hit
}

// segment is an execution or a phase, and what follows until the next begins.
type segment struct {
	kind       string
	graph      Graph
	end        int64 // 0: goes on
	held       bool
	written    bool
	own, after sums
}

// NewRecorder makes a recorder. What is before the first execution is the phase load.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.Top <= 0 {
		o.Top = DefaultTop
	}
	first := &segment{kind: resource.WaitPhase, graph: Graph{Phase: "load", TokenFirst: -1, BeginNS: o.BeginNS}}
	if o.Intervals {
		first.kind, first.graph.Phase = resource.WaitInterval, ""
	}
	return &Recorder{o: o, lines: []*segment{first}, byExec: map[uint64]*segment{}, touched: map[int]bool{}}
}

// Begin reports the begin of an execution.
func (r *Recorder) Begin(g Graph) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &segment{kind: resource.WaitGraph, graph: g, held: g.Held}
	s.graph.Tokens = append([]resource.WaitToken(nil), g.Tokens[:min(len(g.Tokens), maxTokens)]...)
	if g.TokenCount > maxTokens {
		s.graph.Tokens = nil
	}
	if s.graph.BeginNS < r.put {
		r.late++
	}
	if last := r.lines[len(r.lines)-1]; last.kind == resource.WaitPhase && last.end == 0 {
		last.end = s.graph.BeginNS
	}
	r.lines = append(r.lines, s)
	if n := len(r.lines); n > 1 && r.lines[n-2].graph.BeginNS > s.graph.BeginNS {
		slices.SortStableFunc(r.lines, func(a, b *segment) int { return cmp.Compare(a.graph.BeginNS, b.graph.BeginNS) })
	}
	r.byExec[g.Exec] = s
}

// End reports the end of an execution. Without its Begin it is ignored.
func (r *Recorder) End(exec uint64, endNS int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.byExec[exec]; s != nil && s.end == 0 {
		s.end = max(endNS, s.graph.BeginNS)
		if !s.held {
			delete(r.byExec, exec)
		}
	}
}

// Decide releases the held lines of a context's executions up to exec, with their own phase or, where phase is not
// empty, with that one.
func (r *Recorder) Decide(ctx uint32, exec uint64, phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.lines {
		if s.held && s.graph.Ctx == ctx && s.graph.Exec <= exec {
			if s.held = false; phase != "" {
				s.graph.Phase = phase
			}
			if s.end != 0 {
				delete(r.byExec, s.graph.Exec)
			}
		}
	}
}

// AddPath makes a file known by its path.
func (r *Recorder) AddPath(path string) (FileKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.o.Files.AddPath(path)
}

// byMapping resolves faults without a file by mappings.
func (r *Recorder) byMapping() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Files.ByMapping = true
}

// Take notes an event.
func (r *Recorder) Take(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if e.Kind == Call && !readsFiles(e.Syscall) {
		e.File = FileKey{}
	}
	h := r.o.Files.Resolve(e)
	r.pending = append(r.pending, taken{*e, h})
	if len(r.pending) >= maxPending {
		r.assign(maxPending / 2)
	}
}

// ReportedUpTo declares that all executions that began or ended before a time have been reported. Once it was called,
// later events wait for it.
func (r *Recorder) ReportedUpTo(monoNS int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported = max(r.reported, monoNS)
}

// Upto says that all events that ended before have been taken.
func (r *Recorder) Upto(monoNS int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.upto = max(r.upto, monoNS)
	limit := r.upto - int64(hold)
	if r.reported != 0 {
		limit = min(r.upto, r.reported)
	}
	n := 0
	for n < len(r.pending) && r.pending[n].EndNS <= limit &&
		(!r.pending[n].Unsure || r.pending[n].EndNS <= r.upto-int64(hold)) {
		n++
	}
	r.assign(n)
	if n < len(r.pending) {
		limit = min(limit, r.pending[n].EndNS-1)
	}
	r.put = max(r.put, limit)
	r.write(limit - int64(slack))
}

// assign puts the oldest events into their lines.
func (r *Recorder) assign(n int) {
	for i := range r.pending[:n] {
		e := &r.pending[i]
		r.put = max(r.put, e.EndNS)
		r.assignOne(&e.Event, e.Hit)
	}
	r.pending = r.pending[:copy(r.pending, r.pending[n:])]
}

func (r *Recorder) assignOne(e *Event, h Hit) {
	if h.Unsure {
		h = r.o.Files.Resolve(e)
	}
	r.total.add(e, h, r.o.Files)
	s, to := r.find(e.BeginNS)
	if to == nil {
		s, to = r.find(e.EndNS)
	}
	if to == nil {
		r.strays++
		s = r.lines[len(r.lines)-1]
		to = &s.after
	}
	to.add(e, h, r.o.Files)
	if e.Kind == Fault && h.Place >= 0 && !r.touched[h.Place] {
		r.touched[h.Place] = true
		to.first = append(to.first, firstFault{h.Place, e.BeginNS})
	}
	if r.o.Fault != nil && r.err == nil {
		r.err = r.o.Fault(r.fault(e, h, s, to))
	}
	if e.Flags&Unseen != 0 {
		r.unseen++
	}
	r.number++
}

// find returns the line that counts what happened at a time; none where it is written.
func (r *Recorder) find(at int64) (*segment, *sums) {
	i := len(r.lines) - 1
	for i > 0 && r.lines[i].graph.BeginNS > at {
		i--
	}
	for j := i; j >= max(0, i-8); j-- { // executions of several contexts may overlap
		if s := r.lines[j]; s.graph.BeginNS <= at && (s.end == 0 || at <= s.end) {
			if s.written {
				return nil, nil
			}
			return s, &s.own
		}
	}
	if s := r.lines[i]; s.graph.BeginNS <= at {
		return s, &s.after
	} else if !s.written && i == 0 && s.kind != resource.WaitGraph {
		return s, &s.own // before the recording was said to begin
	}
	return nil, nil
}

// write writes the lines that are complete up to a time.
func (r *Recorder) write(upto int64) {
	for len(r.lines) > 0 {
		s, forced := r.lines[0], len(r.lines) > maxLines
		if !s.written {
			if !forced && (s.end == 0 || s.end > upto || s.held && !r.crowded()) {
				return
			}
			r.line(s)
		}
		if len(r.lines) == 1 || !forced && r.lines[1].graph.BeginNS > upto {
			return
		}
		r.between(s, r.lines[1].graph.BeginNS)
		r.lines = append(r.lines[:0], r.lines[1:]...)
	}
}

// crowded reports whether too many lines are held until it is decided whether they were set-up.
func (r *Recorder) crowded() bool {
	n := 0
	for _, s := range r.lines {
		if s.held {
			n++
		}
	}
	return n > maxHeld
}

// line writes a segment's own line.
func (r *Recorder) line(s *segment) {
	g := &s.graph
	l := resource.WaitLine{Kind: s.kind, Phase: g.Phase, BeginNS: g.BeginNS, EndNS: s.end}
	if s.kind == resource.WaitGraph {
		l.Ctx, l.Exec, l.TokenCount, l.Tokens = &g.Ctx, &g.Exec, g.TokenCount, g.Tokens
		if g.TokenFirst >= 0 {
			l.TokenFirst = &g.TokenFirst
		}
	}
	l.FirstFaults = r.order(s)
	r.out(&l, &s.own)
	s.written, s.own = true, sums{}
	r.end = max(r.end, s.end)
	delete(r.byExec, g.Exec)
}

// between writes what came after a segment, if anything did.
func (r *Recorder) between(s *segment, until int64) {
	if s.after.empty() {
		return
	}
	l := resource.WaitLine{Kind: resource.WaitBetween, BeginNS: max(s.end, r.end), EndNS: until}
	if l.EndNS < l.BeginNS {
		l.BeginNS = l.EndNS
	}
	if s.kind == resource.WaitGraph {
		l.Ctx, l.Exec = &s.graph.Ctx, &s.graph.Exec
	}
	r.out(&l, &s.after)
	s.after = sums{}
}

func (r *Recorder) out(l *resource.WaitLine, s *sums) {
	l.DurationNS = l.EndNS - l.BeginNS
	s.fill(l, r.o.Files, r.o.Top)
	if err := r.o.Line(l); err != nil && r.err == nil {
		r.err = err
	}
}

// Interval makes the line of the time since the one before, of a recorder of intervals, and begins the next.
func (r *Recorder) Interval(endNS int64) *resource.WaitLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assign(len(r.pending))
	s := r.lines[0]
	l := &resource.WaitLine{Kind: resource.WaitInterval, BeginNS: s.graph.BeginNS, EndNS: endNS,
		DurationNS: endNS - s.graph.BeginNS}
	s.own.fill(l, r.o.Files, r.o.Top)
	r.lines[0] = &segment{kind: resource.WaitInterval, graph: Graph{TokenFirst: -1, BeginNS: endNS}}
	return l
}

// Totals count what a Recorder could not assign correctly.
type Totals struct {
	// LateGraphs were reported after their events had been assigned elsewhere; Strays are events whose line had been
	// written; Unseen are counted requests whose end was not seen.
	LateGraphs, Strays, Unseen uint64
}

// Close writes all that is left and, of a recorder of graphs, the total: with what was lost and what was missing.
// It may be called twice.
func (r *Recorder) Close(endNS int64, finish func(*resource.WaitLine, Totals)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	r.closed = true
	r.assign(len(r.pending))
	begin := r.o.BeginNS
	if !r.o.Intervals {
		for i, s := range r.lines {
			if s.end == 0 {
				s.end = endNS
			}
			until := endNS
			if i+1 < len(r.lines) {
				until = r.lines[i+1].graph.BeginNS
			}
			if !s.written {
				r.line(s)
			}
			r.between(s, until)
		}
		r.lines = r.lines[:0]
		l := resource.WaitLine{Kind: resource.WaitTotal, BeginNS: begin, EndNS: endNS}
		if finish != nil {
			finish(&l, Totals{r.late, r.strays, r.unseen})
		}
		r.o.Top = math.MaxInt // it lists them all
		r.out(&l, &r.total)
	}
	return r.err
}
