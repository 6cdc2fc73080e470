package request

import (
	"cmp"
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// maxAsks bounds the prompts that wait for a slot, and those that nobody takes: /tokenize receives some too.
const maxAsks = 1 << 14

// Served takes in what the server did.
func (r *Recorder) Served(s *ggmlhooks.Served) error {
	switch s.Kind {
	case ggmlhooks.ServedChoice:
		r.choose(s)
	case ggmlhooks.ServedAsk:
		r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool { return a.thread == s.Row && a.arrivalNS != s.MonoNS })
		if len(r.asks) == maxAsks {
			r.asks = r.asks[1:]
		}
		r.asks = append(r.asks, &ask{thread: s.Row, tokens: int64(s.Value), hash: s.Key, arrivalNS: s.MonoNS,
			off: s.Token == 1})
	case ggmlhooks.ServedAnswer:
		return r.answer(s)
	case ggmlhooks.ServedLine:
		return r.line(s)
	case ggmlhooks.ServedSaved:
		x := r.context(s.Ctx)
		x.saves.put(s.Key, x.slot(s.Row).cells)
	case ggmlhooks.ServedAdapters:
		r.context(s.Ctx).made.adapters = s.Key
	case ggmlhooks.ServedRestored:
		x := r.context(s.Ctx)
		x.slot(s.Row).cells = slices.Clone(x.saves.tokens[s.Key])
	}
	return nil
}

// choose takes in a token that was chosen from a row of the context's last call.
func (r *Recorder) choose(c *ggmlhooks.Served) {
	x := r.context(c.Ctx)
	if !r.owner(x) || c.Row < 0 || int(c.Row) >= len(x.call) {
		return
	}
	s := x.slot(x.call[c.Row].Seqs[0])
	if s.row == c.Row && len(x.copied) > 0 { // slots that share its prompt choose from its last row
		s = x.slot(x.copied[0])
		x.copied = x.copied[1:]
	}
	q := s.now
	if q == nil {
		return
	}
	if q.Output == 0 {
		r.prompted(x, q, c.MonoNS)
	} else {
		q.Gaps = append(q.Gaps, float32(float64(c.MonoNS-q.LastNS)/1e6))
	}
	if s.chosen > 0 && s.calls > 1 && q.Output > 1 {
		q.Accepted++
	}
	s.chosen++
	s.row = c.Row
	q.LastNS = c.MonoNS
	q.Output++
	q.SampleNS += c.MonoNS - c.BegunNS
	q.GrammarNS += c.GrammarNS
	q.ended = c.Value == 1
}

// prompted ends a request's prompt: its first token was chosen.
func (r *Recorder) prompted(x *context, q *request, ns int64) {
	q.FirstNS = ns
	if q.Computed == 0 { // it shares another one's
		q.Cached = int64(len(q.slot.cells))
	}
	q.Prompt = q.Cached + q.Computed
	prompt := q.slot.cells[:min(q.Prompt, int64(len(q.slot.cells)))]
	q.hash = ggmlhooks.PromptHash(prompt)
	q.judge(x, prompt)
}

// asked is the first prompt that nobody has taken and that is a request's; nil: there is none, because the server was
// given tokens, is reached by TLS, or not asked over a network.
func (r *Recorder) asked(q *request) *ask {
	for _, a := range r.asks {
		if a.hash == q.hash && a.tokens == q.Prompt {
			return a
		}
	}
	return nil
}

// take makes a prompt that of a request. Several answers to one prompt share it.
func (q *request) take(a *ask) {
	q.ask, q.ArrivalNS = a, a.arrivalNS
}

// answer takes in why generations ended, as an answer says. It belongs to the request of that thread's prompt which
// has as many tokens as the answer says and whose prompt took about as long: prompts may be alike. A thread that
// answers something else waits for no slot.
func (r *Recorder) answer(s *ggmlhooks.Served) error {
	left := int(s.Key)
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool {
		if a.thread != s.Row {
			return false
		}
		if s.Key == 0 { // unless it is the beginning of a long one
			return !slices.ContainsFunc(r.unanswered(), func(q *request) bool { return q.hash == a.hash })
		}
		open := r.unanswered()
		open = slices.DeleteFunc(open, func(q *request) bool { return !q.fits(a, s) })
		took := decimal(s.Line, `"prompt_ms":`) * 1e6
		off := func(q *request) float64 { return math.Abs(float64(q.FirstNS-q.PromptNS) - took) }
		slices.SortStableFunc(open, func(a, b *request) int { return cmp.Compare(off(a), off(b)) })
		for _, q := range open[:min(len(open), left)] {
			q.take(a)
			q.answer = s.Value
			left--
		}
		return true
	})
	return r.hand(func(q *request) bool { return q.ask != nil })
}

// unanswered are the requests whose answers were not seen, by when their slots were taken.
func (r *Recorder) unanswered() []*request {
	all := slices.Clone(r.pending)
	if r.served != nil {
		for _, s := range r.served.slots {
			if s.now != nil {
				all = append(all, s.now)
			}
		}
	}
	all = slices.DeleteFunc(all, func(q *request) bool { return q.ask != nil })
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// fits reports whether an answer to a prompt may be that of the request: it counts as many tokens, if any.
func (q *request) fits(a *ask, s *ggmlhooks.Served) bool {
	switch {
	case q.failed || s.Value == ggmlhooks.ServedError:
		return q.failed && s.Value == ggmlhooks.ServedError
	case q.hash != a.hash || q.Prompt != a.tokens:
		return false
	case s.Key > 1: // what it says of slot and times is that of the first
		return true
	case s.Token >= 0 && int64(s.Token) != q.Seq:
		return false
	}
	output := number(s.Line, `"predicted_n":`)
	return s.Line == "" || q.Computed == 0 || number(s.Line, `"cache_n":`) == q.Cached &&
		number(s.Line, `"prompt_n":`) == q.Computed && (output == q.Output || output < q.Output && !q.timed)
}

// line takes in a line of the program's log.
func (r *Recorder) line(s *ggmlhooks.Served) error {
	l := readLine(s.Line)
	if r.served == nil {
		return nil
	}
	x := r.served
	if l.what == lineCancel || l.what == lineError {
		for _, slot := range x.slots {
			if q := slot.now; q != nil && q.Task == l.task {
				q.cancelled, q.failed = q.cancelled || l.what == lineCancel, q.failed || l.what == lineError
				r.resign(q, s.Row)
			}
		}
		return nil
	}
	if l.slot < 0 {
		return nil
	}
	slot := x.slot(l.slot)
	switch l.what {
	case lineSimilarity, lineOldest:
		r.picked = l.what
	case lineTimes: // what was accepted of a draft behind a stop string is not in the answer
		if q := slot.now; q != nil {
			if q.timed = true; l.n > 0 && l.n < q.Output {
				q.Output, q.Gaps = l.n, q.Gaps[:l.n-1]
			}
		}
	case lineLaunch:
		if slot.now == nil {
			r.launch(x, slot, l.task)
		}
	}
	return nil
}
