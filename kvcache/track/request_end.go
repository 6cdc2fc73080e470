package track

import (
	"math"
	"slices"

	"github.com/llamatap/llamatap/kvcache"
)

// end takes a request out of its slot.
func (r *Requests) end(s *slot, ns int64) error {
	q := s.now
	if q == nil {
		return nil
	}
	s.now, q.EndNS, q.LastSegment = nil, ns, r.o.Segment()
	if q.embedded != nil && q.loggedNS > 0 { // the sampler of its slot is as old as the server
		q.LaunchNS = q.loggedNS
	}
	s.losses = nil
	if q.ask != nil || q.cancelled && !q.failed || !q.failed && len(r.candidates(q)) == 0 {
		return r.finish(q)
	}
	r.pending = append(r.pending, q)
	return nil
}

// finish hands a request on.
func (r *Requests) finish(q *request) error {
	switch {
	case q.failed:
		q.End = kvcache.EndError
	case q.cancelled:
		q.End = kvcache.EndCancelled
	case q.ended:
		q.End = kvcache.EndStop
	default:
		q.End = q.saidEnd()
	}
	if q.ask == nil && !q.cancelled { // no answer to it was seen; who cancels it has no prompt
		if a := r.only(q, unanswered(r)); a != nil {
			q.take(a)
			r.asks = slices.DeleteFunc(r.asks, func(one *ask) bool { return one == a })
		} else {
			for _, a := range r.candidates(q) {
				a.doubtful = true
			}
		}
	}
	if q.own >= 0 { // whether it wanted what its slot held is known now
		q.Cause = q.ownCause(q.x, q.own)
	}
	if q.gone != nil { // and so is for whom
		q.By = q.gone.by
	}
	q.Settle()
	return r.o.Done(&q.Request)
}

// only is the prompt of a request whose answer was not seen; nil: there is none that is like it, or more than one, or
// it may be another request's.
func (r *arrivals) only(q *request, open []*request) *ask {
	all := r.candidates(q)
	if len(all) != 1 || all[0].doubtful || !q.is(all[0]) {
		return nil
	}
	for _, other := range open {
		if other != q && all[0].like(other) {
			return nil
		}
	}
	return all[0]
}

// Live counts the requests that have a slot, and the prompts that were tokenized and have none. Requests take theirs
// when they are answered: until then one has a prompt that is like its own, or, before its own was computed, the oldest
// one that is left. Several answers to a prompt have one.
func (r *Requests) Live() (running, waiting int) {
	taken := map[*ask]int{}
	take := func(fits func(*ask) bool) bool {
		i := slices.IndexFunc(r.asks, func(a *ask) bool { return fits(a) && taken[a] < a.answers() })
		if i >= 0 {
			taken[r.asks[i]]++
		}
		return i >= 0
	}
	rest := slices.DeleteFunc(unanswered(r), func(q *request) bool {
		return take(func(a *ask) bool { return a.like(q) })
	})
	for range rest {
		take(func(*ask) bool { return true })
	}
	for range r.running {
		running++
	}
	return running, len(r.asks) - len(taken)
}

// Holds reports whether a request of which Done was not called yet has, or may have, a part in a segment.
func (r *Requests) Holds(segment int) bool {
	if r.closed {
		return false
	}
	for q := range r.running {
		if q.FirstSegment <= segment {
			return true
		}
	}
	return slices.ContainsFunc(r.pending, func(q *request) bool {
		return q.FirstSegment <= segment && segment <= q.LastSegment
	})
}

// How long an answer is waited for when its request has left its slot. On a machine that is busy the thread that sends
// it may not get on, and where prompts are alike the answer alone says whose it is.
const (
	patience     = 2_000_000_000
	patienceLike = 30_000_000_000
)

// Tick hands on requests whose answers did not come. now is CLOCK_MONOTONIC in nanoseconds.
func (r *Requests) Tick(now int64) error {
	return r.hand(func(q *request) bool {
		waited := now - over(r, q)
		return waited > patienceLike ||
			waited > patience && (len(r.candidates(q)) == 0 || r.only(q, unanswered(r)) != nil)
	})
}

// over is when everything had ended that was asked together with a request: their one answer is sent then. Where some
// of it runs, or waits for a slot, that is not yet, unless the client has left.
func over(r *Requests, q *request) int64 {
	ns, open := q.EndNS, unanswered(r)
	for _, a := range r.candidates(q) {
		for _, b := range r.asks {
			if b.thread != a.thread || b.left || b == a && a.answers() == 1 {
				continue
			}
			end := int64(math.MaxInt64)
			for _, other := range open {
				switch {
				case !b.like(other):
				case other.EndNS == 0:
					return math.MaxInt64
				case end == math.MaxInt64 || other.EndNS > end:
					end = other.EndNS
				}
			}
			ns = max(ns, end)
		}
	}
	return ns
}

// hand hands on those of the requests that left their slots of which that is true.
func (r *Requests) hand(due func(*request) bool) (err error) {
	for _, q := range slices.Clone(r.pending) {
		if !due(q) {
			continue
		}
		r.pending = slices.DeleteFunc(r.pending, func(one *request) bool { return one == q })
		if failed := r.finish(q); err == nil {
			err = failed
		}
	}
	return err
}

// Close hands on what goes on. It may be called twice.
func (r *Requests) Close() (err error) {
	if r.closed {
		return nil
	}
	r.closed = true
	all := r.pending
	for q := range r.running {
		q.LastSegment = r.o.Segment()
		all = append(all, q)
	}
	slices.SortStableFunc(all, func(a, b *request) int { return int(a.ID - b.ID) })
	for _, q := range all {
		if failed := r.finish(q); err == nil {
			err = failed
		}
	}
	return err
}
