package process

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// silence ends a request whose sequence has had no row for so long. One that continues after that is written again,
// under its number.
const silence = 10 * time.Second

// maxGaps bounds the inter-token gaps that are kept of a request.
const maxGaps = 1 << 20

// CallRequest is what a sequence of a context computed for one prompt, as far as the calls show it. A request begins
// where rows go back to a position that the sequence had before, or where rows without logits follow generated tokens.
// One whose prompt is a single new row right behind the last generated token is not distinguished from more of them.
type CallRequest struct {
	Number   int   `json:"request"` // from 0, by context and sequence
	Context  int   `json:"ctx"`     // from 0, in the order in which they were first seen
	Sequence int32 `json:"seq_id"`
	BeginNS  int64 `json:"begin_mono_ns"` // of its first call; what it waited before is unknown
	EndNS    int64 `json:"end_mono_ns"`   // of its last call
	// Cached is the position of the first row: cells before it were there already. Absent where llama.cpp chose it, and
	// if Partial.
	Cached    *int  `json:"cached_tokens,omitempty"`
	Prompt    int   `json:"prompt_tokens"` // that were computed
	Generated int   `json:"generated_tokens"`
	PromptNS  int64 `json:"prompt_ns"` // from BeginNS to the end of the call that computed the prompt's last row
	// GapP50NS and GapP99NS are times between the ends of calls that had a row of the request with logits.
	GapP50NS int64 `json:"gap_p50_ns,omitempty"`
	GapP99NS int64 `json:"gap_p99_ns,omitempty"`
	// Partial is true if it was under way when the programs were attached, or began behind cells that were there
	// already: it has the first rows of its sequence that were seen, and they are not at position 0.
	Partial bool `json:"partial,omitempty"`

	next    int32   // position behind the prompt
	last    callRun // of generated tokens
	gaps    []int64
	written bool
}

// callFigures are what a context computed in an interval.
type callFigures struct {
	Context     int   `json:"ctx"`
	Calls       int   `json:"calls"`
	Failed      int   `json:"failed_calls"`
	Prompt      int   `json:"prompt_tokens"`
	Generated   int   `json:"generated_tokens"`
	Unknown     int   `json:"unattributed_tokens"` // rows of more sequences than a call lists
	ComputingNS int64 `json:"computing_ns"`        // within the interval
	CallP50NS   int64 `json:"call_p50_ns"`         // of calls that ended: their whole duration
	CallP99NS   int64 `json:"call_p99_ns"`
	Sequences   int   `json:"sequences"` // that had rows

	durations []int64
	seen      map[int32]bool
}

// tracker turns calls into figures and requests. The zero value is ready.
type tracker struct {
	contexts map[uint64]int
	figures  map[int]*callFigures
	requests map[place]*CallRequest
	done     []*CallRequest
	begun    map[place]int
	taken    int64 // when figures were last taken
}

// place is where a request is computed.
type place struct {
	context  int
	sequence int32
}

// Add takes a call that has ended, in the order in which they ended.
func (t *tracker) Add(c *call) {
	number, f := t.computing(c.Context, c.BeginNS, c.EndNS)
	f.Calls++
	f.durations = append(f.durations, c.EndNS-c.BeginNS)
	if c.Result != 0 {
		f.Failed++ // its rows are given again, or not at all
		return
	}
	f.Unknown += c.BeyondRows
	for _, run := range c.Runs {
		f.seen[run.Sequence] = true
		prompt, generated := t.add(place{number, run.Sequence}, c, run)
		f.Prompt, f.Generated = f.Prompt+prompt, f.Generated+generated
	}
}

// computing adds a stretch of time to the figures of a context, as far as it is within the interval.
func (t *tracker) computing(context uint64, begin, end int64) (number int, f *callFigures) {
	if t.contexts == nil {
		t.contexts, t.figures, t.requests = map[uint64]int{}, map[int]*callFigures{}, map[place]*CallRequest{}
		t.begun = map[place]int{}
	}
	number, known := t.contexts[context]
	if !known {
		number = len(t.contexts)
		t.contexts[context] = number
	}
	if f = t.figures[number]; f == nil {
		f = &callFigures{Context: number, seen: map[int32]bool{}}
		t.figures[number] = f
	}
	f.ComputingNS += max(0, end-max(begin, t.taken))
	return number, f
}

// Shift notes that cells of a sequence were given other positions, in whichever context.
func (t *tracker) Shift(sequence, delta int32) {
	for at, r := range t.requests {
		if at.sequence == sequence {
			r.next, r.last.Position = r.next+delta, r.last.Position+delta
		}
	}
}

// add takes rows of a sequence, and returns how many were of a prompt, and how many more tokens are known to have been
// generated.
func (t *tracker) add(at place, c *call, run callRun) (prompt, generated int) {
	r := t.requests[at]
	back := r != nil && run.Position >= 0 && run.Position < max(r.next, r.last.Position+int32(min(r.last.Rows, 1)))
	if r == nil || r.Generated > 0 && (back || run.Outputs < run.Rows) {
		r = t.begin(at, c, run)
	}
	defer func() { r.EndNS, r.written = c.EndNS, false }()
	if r.Generated == 0 {
		prompt = int(run.Rows)
		if r.Prompt += prompt; run.Outputs == 0 {
			return prompt, 0
		}
		r.PromptNS, r.next = c.EndNS-r.BeginNS, run.Position+int32(prompt)
	} else {
		// Of several rows, such as a draft, those before the position of the next ones were accepted.
		if r.last.Rows > 1 && run.Position >= 0 {
			generated = min(max(1, int(run.Position-r.last.Position)), int(r.last.Rows)) - 1
		}
		if first := r.Prompt == 0 && r.last.Rows == 0; !first && len(r.gaps) < maxGaps {
			r.gaps = append(r.gaps, c.EndNS-r.EndNS)
		}
		r.last = run
	}
	generated++
	r.Generated += generated
	return prompt, generated
}

// begin starts a request in the place of another.
func (t *tracker) begin(at place, c *call, run callRun) *CallRequest {
	before := t.requests[at]
	if before != nil {
		t.finish(before)
	}
	r := &CallRequest{Number: t.begun[at], Context: at.context, Sequence: at.sequence, BeginNS: c.BeginNS,
		EndNS: c.EndNS}
	t.begun[at]++
	t.requests[at] = r
	if cached := int(run.Position); cached >= 0 {
		r.Cached = &cached
	}
	if before == nil && run.Position > 0 { // the first rows that were seen
		r.Partial, r.Cached = true, nil
		if run.Outputs == run.Rows {
			r.Generated, r.next = 1, run.Position // of the token that these rows are
		}
	}
	return r
}

// finish hands a request out, unless that was done since its last call.
func (t *tracker) finish(r *CallRequest) {
	if !r.written {
		r.written = true
		t.done = append(t.done, r)
	}
}

// flush returns the figures since the last time, by context, and the requests that have ended since, by now on
// CLOCK_MONOTONIC; with all, those that may continue too.
func (t *tracker) flush(now int64, all bool) ([]callFigures, []CallRequest) {
	for _, at := range slices.SortedFunc(maps.Keys(t.requests), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.context, b.context), cmp.Compare(a.sequence, b.sequence))
	}) {
		if r := t.requests[at]; all || now-r.EndNS > int64(silence) {
			t.finish(r)
		}
	}
	figures := make([]callFigures, 0, len(t.figures))
	for _, number := range slices.Sorted(maps.Keys(t.figures)) {
		f := t.figures[number]
		f.Sequences = len(f.seen)
		f.CallP50NS, f.CallP99NS = percentiles(f.durations)
		figures = append(figures, *f)
	}
	requests := make([]CallRequest, 0, len(t.done))
	for _, r := range t.done {
		r.GapP50NS, r.GapP99NS = percentiles(r.gaps)
		requests = append(requests, *r)
	}
	clear(t.figures)
	t.taken = now
	t.done = t.done[:0]
	return figures, requests
}

// percentiles are the values below or at which 50 and 99 percent lie; 0 of nothing.
func percentiles(values []int64) (p50, p99 int64) {
	if len(values) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(percent int) int64 { return sorted[(len(sorted)*percent+99)/100-1] }
	return at(50), at(99)
}
