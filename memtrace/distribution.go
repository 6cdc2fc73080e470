package memtrace

import (
	"iter"
	"math"
	"math/bits"
)

// Distribution counts values from 0 on in bounded memory: 64 buckets for each power of two. Its quantiles are values that were added, and at
// most 1/64 above the true ones; where a bucket holds one value only they are exact. The zero value is empty.
type Distribution struct {
	Count, Sum int64
	Min, Max   int64
	pages      [60]*[64]bucket // those that hold something
}

// bucket is values that are nearly alike. Of those that are censored it is only known that they are at least so large.
type bucket struct {
	events, censored int64
	last             int64 // the largest of its events, of its censored ones where there is none
	edge             int64 // the largest of all
}

// bucketOf is the number of the bucket of a value.
func bucketOf(v int64) int {
	const sub = 6
	if v < 1<<(sub+1) {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - sub - 1
	return shift<<sub + int(v>>shift)
}

// Add counts a value; one below 0 counts as 0.
func (d *Distribution) Add(v int64) { d.put(v, false) }

func (d *Distribution) put(v int64, censored bool) {
	v = max(v, 0)
	if d.Count == 0 {
		d.Min = v
	}
	d.Count++
	d.Sum += v
	d.Min, d.Max = min(d.Min, v), max(d.Max, v)
	n := bucketOf(v)
	page := d.pages[n>>6]
	if page == nil {
		page = new([64]bucket)
		d.pages[n>>6] = page
	}
	b := &page[n&63]
	switch {
	case censored:
		b.censored++
	case b.events == 0:
		b.events, b.last = 1, v
	default:
		b.events++
		b.last = max(b.last, v)
	}
	if b.edge = max(b.edge, v); b.events == 0 {
		b.last = b.edge
	}
}

// ordered are the buckets that hold something, by value.
func (d *Distribution) ordered() iter.Seq[*bucket] {
	return func(yield func(*bucket) bool) {
		for _, page := range d.pages {
			for i := 0; page != nil && i < len(page); i++ {
				if b := &page[i]; b.events+b.censored > 0 && !yield(b) {
					return
				}
			}
		}
	}
}

// Quantile is the smallest value that at least a share p of all values does not exceed. It is false where there are none.
func (d *Distribution) Quantile(p float64) (v int64, ok bool) {
	want := int64(math.Ceil(min(max(p, 0), 1) * float64(d.Count)))
	below := int64(0)
	for b := range d.ordered() {
		if below += b.events + b.censored; below >= max(want, 1) {
			return b.edge, true
		}
	}
	return 0, false
}

// Mean is the mean of all values; false where there are none.
func (d *Distribution) Mean() (float64, bool) {
	if d.Count == 0 {
		return 0, false
	}
	return float64(d.Sum) / float64(d.Count), true
}

// Survival is a Distribution of durations some of which are censored: what they last was not seen to end. [Distribution.Quantile] takes a
// censored one for what was seen of it, and so is biased to short ones; [Survival.KaplanMeier] is not. The zero value is empty.
type Survival struct {
	Distribution
	Censored int64
}

// Add counts a duration that ended, or one of which only the beginning was seen.
func (s *Survival) Add(v int64, censored bool) {
	s.put(v, censored)
	if censored {
		s.Censored++
	}
}

// CensoredShare is the share of durations whose end was not seen; false where there are none.
func (s *Survival) CensoredShare() (float64, bool) {
	if s.Count == 0 {
		return 0, false
	}
	return float64(s.Censored) / float64(s.Count), true
}

// KaplanMeier is the duration that a share p of all is estimated not to exceed, by the product-limit estimator (Kaplan and Meier 1958):
// S(t) = Π (1 - d/n) over the durations up to t at which some ended, d being how many, of n that had lasted so long. Of equal durations
// those that ended come first. It is false where S never falls to 1-p: then so many are censored that nobody knows.
func (s *Survival) KaplanMeier(p float64) (v int64, ok bool) {
	left, at := 1.0, s.Count
	for b := range s.ordered() {
		if b.events > 0 {
			left *= 1 - float64(b.events)/float64(at)
			if left <= 1-p+1e-12 {
				return b.last, true
			}
		}
		at -= b.events + b.censored
	}
	return 0, false
}
