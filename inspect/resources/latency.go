package resources

import (
	"math"
	"math/bits"
)

// Latencies counts durations in buckets whose bounds are at most 1/32 apart. The zero value holds none.
type Latencies struct {
	Count int64
	NS    int64 // their sum
	Least int64
	Most  int64

	buckets [64 * latencySteps]int64
}

// latencySteps is how many buckets there are from a power of two to the next.
const latencySteps = 32

func (l *Latencies) add(ns int64) {
	ns = max(ns, 0)
	if l.Count == 0 || ns < l.Least {
		l.Least = ns
	}
	l.Count++
	l.NS += ns
	l.Most = max(l.Most, ns)
	l.buckets[latencyBucket(ns)]++
}

// latencyBucket is the bucket of a duration: below 32 ns one each, then 32 from each power of two to the next.
func latencyBucket(ns int64) int {
	if ns < latencySteps {
		return int(ns)
	}
	shift := bits.Len64(uint64(ns)) - 6 // so that ns >> shift is from 32 to 63
	return (shift+1)*latencySteps + int(ns>>shift) - latencySteps
}

// latencyBound is the largest duration of a bucket.
func latencyBound(bucket int) int64 {
	if bucket < latencySteps {
		return int64(bucket)
	}
	shift := bucket/latencySteps - 1
	return (int64(bucket%latencySteps)+latencySteps+1)<<shift - 1
}

// AtMost returns a bound that a share of the durations does not pass, from 0 to 1: the smallest bound of a bucket,
// or the longest duration.
func (l *Latencies) AtMost(share float64) int64 {
	need, seen := int64(math.Ceil(share*float64(l.Count))), int64(0)
	for i, n := range l.buckets {
		if seen += n; n > 0 && seen >= need {
			return min(latencyBound(i), l.Most)
		}
	}
	return l.Most
}

// Below counts the durations of at most ns, as far as the buckets show: those of buckets that end there or before.
func (l *Latencies) Below(ns int64) (count int64) {
	for i, n := range l.buckets {
		if latencyBound(i) > ns {
			break
		}
		count += n
	}
	return count
}
