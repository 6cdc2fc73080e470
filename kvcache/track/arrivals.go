package track

import (
	"encoding/json"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// arrivals are the prompts that arrived and that no request has taken.
type arrivals struct {
	asks  []*ask
	heads heads
}

// ask is a prompt that arrived.
type ask struct {
	thread    int32
	tokens    int64
	hash      uint64
	arrivalNS int64
	off       bool // it does not want what its slot holds
	doubtful  bool // it may be that of a request which was handed on without one
	left      bool // its client does not wait for the answer any more
	given     int  // answers to it so far
	said      kvcache.RequestSaid
}

// maxAsks bounds the prompts that wait for a slot, and those that nobody takes: /tokenize receives some too.
const maxAsks = 1 << 14

// ask takes in a prompt that a thread received.
func (r *arrivals) ask(s *ggmlhooks.Served) {
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool { return a.thread == s.Row && a.arrivalNS != s.MonoNS })
	if s.Value == 0 {
		for _, a := range r.asks {
			a.off = a.off || a.thread == s.Row
		}
		return
	}
	if len(r.asks) == maxAsks {
		r.asks = r.asks[1:]
	}
	a := &ask{thread: s.Row, tokens: int64(s.Value), hash: s.Key, arrivalNS: s.MonoNS, off: s.Token == 1}
	if h := r.heads[s.Row]; h.arrivalNS == s.MonoNS {
		a.said = h.RequestSaid
	}
	r.asks = append(r.asks, a)
}

// candidates are the prompts that nobody has taken and that may be a request's. There is none where the server was
// given tokens, is reached by TLS, or not asked over a network.
func (r *arrivals) candidates(q *request) (all []*ask) {
	for _, a := range r.asks {
		if a.like(q) {
			all = append(all, a)
		}
	}
	return all
}

// is reports whether a prompt that arrived is the request's. A server that ranks tokenizes query and document apart:
// the document stands at the end, before at most one token that ends it.
func (q *request) is(a *ask) bool {
	if !q.after(a) {
		return false
	}
	if q.Prompt == a.tokens {
		return q.hash == a.hash
	}
	document := func(end int) bool {
		first := end - int(a.tokens)
		return first > 0 && ggmlhooks.PromptHash(q.embedded[first:end]) == a.hash
	}
	n := len(q.embedded)
	return strings.Contains(a.said.Path, "rerank") && (document(n) || document(n-1))
}

// mayBe reports whether a prompt that arrived may be the request's: it is as long, and the same where that was seen.
func (q *request) mayBe(a *ask) bool {
	return q.Prompt == a.tokens && (q.hash == a.hash || q.unseen) && q.after(a)
}

// like reports whether a prompt is, or may be, the request's.
func (a *ask) like(q *request) bool { return q.is(a) || q.mayBe(a) }

// after reports whether a request got its slot after a prompt arrived. The sampler of a slot for embeddings is as old
// as the server.
func (q *request) after(a *ask) bool {
	if q.embedded != nil || q.LaunchNS == 0 {
		return a.arrivalNS <= q.PromptNS
	}
	return a.arrivalNS <= q.LaunchNS
}

// take makes a prompt that of a request. Several answers to one prompt share it. What was lost before it arrived was
// not lost for it: somebody erased or restored a slot.
func (q *request) take(a *ask) {
	q.ask, q.ArrivalNS, q.Said = a, a.arrivalNS, a.said
	for _, l := range q.losses {
		if l.atNS < a.arrivalNS {
			l.by = -1
		}
	}
}

// answer takes in why generations ended, as an answer says. It belongs to the requests of that thread's prompts which
// have as many tokens as the answer says and took about as long: prompts may be alike. A thread that answers something
// else waits for no slot. unanswered are the requests whose answers were not seen.
func (r *arrivals) answer(s *ggmlhooks.Served, unanswered func() []*request) {
	var mine []*ask
	for _, a := range r.asks {
		if a.thread == s.Row {
			mine = append(mine, a)
		}
	}
	waits := func(a *ask) bool {
		return slices.ContainsFunc(unanswered(), func(q *request) bool { return q.mayBe(a) })
	}
	over := func(a *ask) bool { return !streams(&a.said) || a.answers() <= 0 }
	if s.Key == 0 { // embeddings, something else than a request's answer, the beginning of a long one, a stream's end
		over = func(a *ask) bool { return embedded(a, s, unanswered()) || !waits(a) }
	} else if len(mine) > 0 && !answers(mine, s, unanswered) {
		mine[0].given += int(s.Key)
	}
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool { return a.thread == s.Row && over(a) })
}

// embedded gives a text its prompt, if there is one whose embedding was read.
func embedded(a *ask, s *ggmlhooks.Served, open []*request) bool {
	for _, q := range open {
		if q.embedded != nil && q.is(a) && !strings.HasSuffix(a.said.Path, "/tokenize") {
			q.take(a)
			q.answer = ggmlhooks.ServedCompleted
			q.answered(s.Line)
			return true
		}
	}
	return false
}

// answers gives requests their prompts. An answer of several generations has the counts, slot and times of the first,
// and the others have their tasks, or slots, right behind that one.
func answers(mine []*ask, s *ggmlhooks.Served, unanswered func() []*request) bool {
	var first *request
	for range s.Key {
		var best *request
		var of *ask
		like, least := 0, 0.0
		for _, q := range unanswered() {
			at := slices.IndexFunc(mine, func(a *ask) bool {
				return a.answers() > 0 && (first == nil && q.fits(a, s) || first != nil && q.mayBe(a) && !q.failed)
			})
			if at < 0 {
				continue
			}
			far := q.off(s)
			if first != nil {
				far = q.behind(first)
			}
			if math.IsInf(far, 1) {
				continue
			}
			if like++; best == nil || far < least {
				best, of, least = q, mine[at], far
			}
		}
		if best == nil || first == nil && like > 1 && !strings.Contains(s.Line, `"timings":`) {
			break // there is none, or several that nothing distinguishes
		}
		if first == nil {
			first = best
		}
		best.take(of)
		best.answer = s.Value
		best.answered(s.Line)
		of.given++
	}
	return first != nil
}

// answers is how many answers to a prompt there are still to come.
func (a *ask) answers() int {
	var all struct {
		N    int `json:"n"`
		Cmpl int `json:"n_cmpl"`
	}
	_ = json.Unmarshal([]byte(a.said.Settings), &all)
	return max(1, all.N, all.Cmpl) - a.given
}

// off is how far a request's times are from those of an answer. One that has its slot still is farther than others.
func (q *request) off(s *ggmlhooks.Served) float64 {
	off := math.Abs(float64(q.LastNS-q.FirstNS) - decimal(s.Line, `"predicted_ms":`)*1e6)
	if q.Computed > 0 { // else it shares another one's prompt
		off += math.Abs(float64(q.FirstNS-q.PromptNS) - decimal(s.Line, `"prompt_ms":`)*1e6)
	}
	if q.EndNS == 0 {
		off += 1e18
	}
	return off
}

// behind is how far a request was posted behind another one.
func (q *request) behind(first *request) float64 {
	switch {
	case q.Task < 0 || first.Task < 0:
		return math.Abs(float64(q.LaunchNS - first.LaunchNS))
	case q.Task < first.Task:
		return math.Inf(1)
	}
	return float64(q.Task - first.Task)
}

// fits reports whether an answer to a prompt may be that of the request: it counts as many tokens, if any.
func (q *request) fits(a *ask, s *ggmlhooks.Served) bool {
	switch {
	case q.failed || s.Value == ggmlhooks.ServedError:
		return q.failed && s.Value == ggmlhooks.ServedError && q.after(a) && (q.long < 0 || q.long == a.tokens)
	case !q.mayBe(a):
		return false
	case s.Key > 1 && (q.unseen || q.Computed == 0):
		return false
	case s.Token >= 0 && int64(s.Token) != q.Seq:
		return false
	case !strings.Contains(s.Line, `"timings":`):
		output := number(s.Line, `"output_tokens":`)
		return !q.unseen && (output < 0 || output == q.Output)
	}
	output := number(s.Line, `"predicted_n":`)
	prompt := number(s.Line, `"cache_n":`) == q.Cached && number(s.Line, `"prompt_n":`) == q.Computed
	behindStop := output < q.Output && !q.timed && q.Drafted > 0 // a stop string ends the answer, and drafts follow
	return (q.Computed == 0 || prompt) && (output == q.Output || behindStop)
}

// resign takes the prompt of a request that a thread gives up, with others that share it perhaps: those have their
// slots still.
func (r *arrivals) resign(q *request, thread int32, running iter.Seq[*request]) {
	if q.ask != nil {
		return
	}
	at := slices.IndexFunc(r.asks, func(a *ask) bool { return a.thread == thread && a.like(q) })
	if at < 0 { // its prompt is not computed yet
		at = slices.IndexFunc(r.asks, func(a *ask) bool { return a.thread == thread })
	}
	if at >= 0 {
		q.take(r.asks[at])
		r.asks = slices.Delete(r.asks, at, at+1)
		return
	}
	for other := range running {
		if other.cancelled && other.ask != nil && other.ask.thread == thread {
			q.take(other.ask)
			return
		}
	}
}
