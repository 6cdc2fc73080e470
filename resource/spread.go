package resource

import (
	"math"
	"math/bits"
)

// Spread counts durations finely enough for percentiles, in constant memory: the bounds of its buckets are at most
// 1/32 apart. The zero value holds none.
type Spread struct {
	Count, Sum, Min, Max int64

	buckets [(64 - spreadBits) * spreadParts]int64
}

// Each power of two is cut into buckets of equal width.
const (
	spreadBits  = 5
	spreadParts = 1 << spreadBits
)

// Add counts a duration. A negative one counts as zero.
func (s *Spread) Add(ns int64) {
	ns = max(ns, 0)
	if s.Count == 0 || ns < s.Min {
		s.Min = ns
	}
	s.Count++
	s.Sum += ns
	s.Max = max(s.Max, ns)
	s.buckets[spreadBucket(ns)]++
}

// spreadBucket is the bucket of a duration: below 32 ns one each, then 32 from each power of two to the next.
func spreadBucket(ns int64) int {
	if ns < spreadParts {
		return int(ns)
	}
	shift := bits.Len64(uint64(ns)) - 1 - spreadBits // so that ns >> shift is from 32 to 63
	return shift*spreadParts + int(ns>>shift)
}

// spreadBound is the largest duration of a bucket.
func spreadBound(bucket int) int64 {
	if bucket < spreadParts {
		return int64(bucket)
	}
	shift := bucket/spreadParts - 1
	return int64(uint64(bucket%spreadParts+spreadParts+1)<<shift - 1)
}

// AtMost returns a bound that a share of the durations, from 0 to 1, does not pass: the smallest bound of a bucket,
// or the longest duration. It is 0 of none.
func (s *Spread) AtMost(share float64) int64 {
	need, seen := int64(math.Ceil(share*float64(s.Count))), int64(0)
	for i, n := range s.buckets {
		if seen += n; n > 0 && seen >= need {
			return min(spreadBound(i), s.Max)
		}
	}
	return s.Max
}

// Below counts the durations of at most ns, as far as the buckets show: those of buckets that end there or before.
func (s *Spread) Below(ns int64) (count int64) {
	for i, n := range s.buckets {
		if spreadBound(i) > ns {
			break
		}
		count += n
	}
	return count
}
