package track

import (
	"cmp"
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
		if q.is(a) || q.mayBe(a) {
			all = append(all, a)
		}
	}
	return all
}

// is reports whether a prompt that arrived is the request's. A server that ranks tokenizes query and document apart:
// the document stands at the end, before at most one token that ends it.
func (q *request) is(a *ask) bool {
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
func (q *request) mayBe(a *ask) bool { return q.Prompt == a.tokens && (q.hash == a.hash || q.unseen) }

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

// answer takes in why generations ended, as an answer says. It belongs to the request of that thread's prompt which
// has as many tokens as the answer says and whose prompt took about as long: prompts may be alike. A thread that
// answers something else waits for no slot. unanswered are the requests whose answers were not seen.
func (r *arrivals) answer(s *ggmlhooks.Served, unanswered func() []*request) {
	left := int(s.Key)
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool {
		if a.thread != s.Row {
			return false
		}
		if s.Key == 0 { // embeddings, something else than a request's answer, or the beginning of a long one
			for _, q := range unanswered() {
				if q.embedded != nil && q.is(a) && !strings.HasSuffix(a.said.Path, "/tokenize") {
					q.take(a)
					q.answer = ggmlhooks.ServedCompleted
					q.answered(s.Line)
					return true
				}
			}
			return !slices.ContainsFunc(unanswered(), func(q *request) bool { return q.mayBe(a) })
		}
		open := unanswered()
		open = slices.DeleteFunc(open, func(q *request) bool { return !q.fits(a, s) })
		took := decimal(s.Line, `"prompt_ms":`) * 1e6
		off := func(q *request) float64 { return math.Abs(float64(q.FirstNS-q.PromptNS) - took) }
		going := func(q *request) int { // 1: it has its slot still, and other requests come before it
			if q.EndNS == 0 {
				return 1
			}
			return 0
		}
		slices.SortStableFunc(open, func(a, b *request) int {
			return cmp.Or(cmp.Compare(going(a), going(b)), cmp.Compare(off(a), off(b)))
		})
		for _, q := range open[:min(len(open), left)] {
			q.take(a)
			q.answer = s.Value
			q.answered(s.Line)
			left--
		}
		return true
	})
}

// fits reports whether an answer to a prompt may be that of the request: it counts as many tokens, if any.
func (q *request) fits(a *ask, s *ggmlhooks.Served) bool {
	switch {
	case q.failed || s.Value == ggmlhooks.ServedError:
		return q.failed && s.Value == ggmlhooks.ServedError
	case !q.mayBe(a):
		return false
	case s.Key > 1: // what it says of slot and times is that of the first
		return !q.unseen
	case s.Token >= 0 && int64(s.Token) != q.Seq:
		return false
	}
	output := number(s.Line, `"predicted_n":`)
	return !strings.Contains(s.Line, `"timings":`) && !q.unseen || q.Computed == 0 ||
		number(s.Line, `"cache_n":`) == q.Cached && number(s.Line, `"prompt_n":`) == q.Computed &&
			(output == q.Output || output < q.Output && !q.timed && q.Drafted > 0) // behind a stop string
}

// resign takes the prompt of a request that a thread gives up.
func (r *arrivals) resign(q *request, thread int32) {
	at := slices.IndexFunc(r.asks, func(a *ask) bool { return a.thread == thread })
	if at >= 0 && q.ask == nil {
		q.take(r.asks[at])
		r.asks = slices.Delete(r.asks, at, at+1)
	}
}
