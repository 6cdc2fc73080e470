package filemap

import (
	"math"
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

// Bounds of memory: beyond maxPending an event is put where it belongs as far as is known.
const (
	maxPending = 1 << 18
	maxTokens  = 16
)

// defaultTop is how many places a line lists.
const defaultTop = 16

// recorderOptions say where a Recorder writes. Files and Line must be given.
type recorderOptions struct {
	Files *Files
	// Line is handed each line in the order of time. It is lent.
	Line func(*resource.WaitLine) error
	// Fault is handed each event; nil: not asked for. It is lent.
	Fault func(*resource.FaultLine) error
	// Top is how many places a line lists; 0 = defaultTop.
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
	o  recorderOptions
	mu sync.Mutex

	pending  []taken // in the order of their ends
	upto     int64   // all events up to here are known
	reported int64   // all executions that began up to here are known; 0: nobody says so
	put      int64   // events up to here are in their lines
	number   uint64

	lines   timeline
	touched map[int]bool // places that faulted
	total   sums
	missed  Totals
	closed  bool
}

// taken is an event that waits to be put into a line, resolved while its process was there.
type taken struct {
	Event
	Hit
}

// newRecorder makes a recorder. What is before the first execution is the phase load.
func newRecorder(o recorderOptions) *Recorder {
	if o.Top <= 0 {
		o.Top = defaultTop
	}
	first := &segment{kind: resource.WaitPhase, graph: Graph{Phase: "load", TokenFirst: -1, BeginNS: o.BeginNS}}
	if o.Intervals {
		first.kind, first.graph.Phase = resource.WaitInterval, ""
	}
	r := &Recorder{o: o, touched: map[int]bool{}}
	r.lines = timeline{o: &r.o, waiting: []*segment{first}, byExec: map[uint64]*segment{}}
	return r
}

// Begin reports the begin of an execution.
func (r *Recorder) Begin(g Graph) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.BeginNS < r.put {
		r.missed.LateGraphs++
	}
	r.lines.begin(g)
}

// End reports the end of an execution. Without its Begin it is ignored.
func (r *Recorder) End(exec uint64, endNS int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines.finish(exec, endNS)
}

// decide releases the held lines of a context's executions up to exec, with their own phase or, where phase is not
// empty, with that one.
func (r *Recorder) decide(ctx uint32, exec uint64, phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines.decide(ctx, exec, phase)
}

// AddPath makes a file known by its path.
func (r *Recorder) AddPath(path string) (fileKey, error) {
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
		e.File = fileKey{}
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

// Upto records that all events that ended before have been taken.
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
	r.lines.write(limit - int64(slack))
}

// assign puts the oldest events into their lines.
func (r *Recorder) assign(n int) {
	for i := range r.pending[:n] {
		e, h, files := &r.pending[i].Event, r.pending[i].Hit, r.o.Files
		r.put = max(r.put, e.EndNS)
		if h.Unsure {
			h = files.Resolve(e)
		}
		r.total.add(e, h, files)
		s, to := r.lines.find(e.BeginNS)
		if to == nil {
			s, to = r.lines.find(e.EndNS)
		}
		if to == nil {
			r.missed.Strays++
			s = r.lines.waiting[len(r.lines.waiting)-1]
			to = &s.after
		}
		to.add(e, h, files)
		if e.Kind == Fault && h.Place >= 0 && !r.touched[h.Place] {
			r.touched[h.Place] = true
			to.first = append(to.first, firstFault{h.Place, e.BeginNS})
		}
		if r.o.Fault != nil && r.lines.err == nil {
			l := faultLine(e, h, files)
			if l.Number, l.In = r.number, s.kind; to == &s.after {
				l.In = resource.WaitBetween
			}
			if s.kind == resource.WaitGraph {
				l.Exec = &s.graph.Exec
			}
			r.lines.err = r.o.Fault(l)
		}
		if e.Flags&Unseen != 0 {
			r.missed.Unseen++
		}
		r.number++
	}
	r.pending = r.pending[:copy(r.pending, r.pending[n:])]
}

// interval makes the line of the time since the one before, of a recorder of intervals, and begins the next.
func (r *Recorder) interval(endNS int64) *resource.WaitLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assign(len(r.pending))
	s := r.lines.waiting[0]
	l := &resource.WaitLine{Kind: resource.WaitInterval, BeginNS: s.graph.BeginNS, EndNS: endNS,
		DurationNS: endNS - s.graph.BeginNS}
	s.own.fill(l, r.o.Files, r.o.Top)
	*s = segment{kind: resource.WaitInterval, graph: Graph{TokenFirst: -1, BeginNS: endNS}}
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
		return r.lines.err
	}
	r.closed = true
	r.assign(len(r.pending))
	if !r.o.Intervals {
		r.lines.drain(endNS)
		l := resource.WaitLine{Kind: resource.WaitTotal, BeginNS: r.o.BeginNS, EndNS: endNS}
		if finish != nil {
			finish(&l, r.missed)
		}
		r.lines.out(&l, &r.total, math.MaxInt) // it lists all places
	}
	return r.lines.err
}
