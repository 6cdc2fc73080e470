package sampling

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// Sorted takes accesses out of a queue, nearly in the order of time: collectors have a ring per CPU, and are read
// one after the other. It is for one goroutine.
type Sorted struct {
	q       *Queue
	waiting []memtrace.Access
}

// NewSorted takes them out of q.
func NewSorted(q *Queue) *Sorted { return &Sorted{q: q} }

// taken is how many accesses are sorted together.
const taken = 1 << 14

// Before calls each for the accesses of before a time that are there now.
func (s *Sorted) Before(ns int64, each func(*memtrace.Access)) {
	for {
		if len(s.waiting) < taken {
			s.waiting = s.q.Take(s.waiting, taken)
			slices.SortStableFunc(s.waiting, func(a, b memtrace.Access) int { return cmp.Compare(a.TimeNS, b.TimeNS) })
		}
		n := 0
		for ; n < len(s.waiting) && s.waiting[n].TimeNS < ns; n++ {
			each(&s.waiting[n])
		}
		s.waiting = s.waiting[:copy(s.waiting, s.waiting[n:])]
		if n == 0 {
			return
		}
	}
}
