package track

import (
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
	asks := r.asked(q) != nil || slices.ContainsFunc(r.asks, q.mayBe)
	if q.ask != nil || q.cancelled && !q.failed || !q.failed && !asks {
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
	if a := r.asked(q); a != nil && q.ask == nil { // nobody answered it: the first that is like it
		q.take(a)
		r.asks = slices.DeleteFunc(r.asks, func(one *ask) bool { return one == a })
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

// Live counts the requests that have a slot, and the prompts that were tokenized and have none: those that no request
// has taken, but for those of requests that go on, which take theirs when they are answered.
func (r *Requests) Live() (running, waiting int) {
	untaken := 0
	for _, q := range unanswered(r) {
		if q.ask == nil {
			untaken++
		}
	}
	for range r.running {
		running++
	}
	return running, max(0, len(r.asks)-untaken)
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

// patience is how long an answer is waited for when its request has left its slot.
const patience = 2_000_000_000

// Tick hands on requests whose answers did not come. now is CLOCK_MONOTONIC in nanoseconds.
func (r *Requests) Tick(now int64) error {
	return r.hand(func(q *request) bool { return now-q.EndNS > patience })
}

// hand hands on those of the requests that left their slots of which that is true.
func (r *Requests) hand(due func(*request) bool) (err error) {
	r.pending = slices.DeleteFunc(r.pending, func(q *request) bool {
		if !due(q) {
			return false
		}
		if failed := r.finish(q); err == nil {
			err = failed
		}
		return true
	})
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
