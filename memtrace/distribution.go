package memtrace

import (
	"iter"
	"math"
	"math/bits"
)

// Tally is how many values there were, and what they add up to.
type Tally struct {
	Count    int64   // of values, each as often as it counts
	Sum      float64 // of count · value
	Min, Max int64
}

// Add counts a value n times.
func (t *Tally) Add(v, n int64) {
	if t.Count == 0 {
		t.Min = v
	}
	t.Count += n
	t.Sum += float64(v) * float64(n)
	t.Min, t.Max = min(t.Min, v), max(t.Max, v)
}

// Mean is the mean of all values; false where there are none.
func (t *Tally) Mean() (float64, bool) {
	if t.Count == 0 {
		return 0, false
	}
	return t.Sum / float64(t.Count), true
}

// merge takes in what another tally counted.
func (t *Tally) merge(o *Tally) {
	if o.Count == 0 {
		return
	}
	if t.Count == 0 {
		*t = *o
		return
	}
	t.Count += o.Count
	t.Sum += o.Sum
	t.Min, t.Max = min(t.Min, o.Min), max(t.Max, o.Max)
}

// Distribution counts values from 0 on in bounded memory: 64 buckets for each power of two. Its quantiles are
// values that were added, and at most 1/64 above the true ones; where a bucket holds one value only they are exact.
// The zero value is empty.
type Distribution struct {
	Tally
	pages [60]*[64]bucket // those that hold something
	value int64           // that was added last, and its bucket: many come several times
	hot   *bucket
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

// Add counts a value n times, n > 0; one below 0 counts as 0.
func (d *Distribution) Add(v, n int64) {
	v = max(v, 0)
	d.Tally.Add(v, n)
	d.bucket(v).add(v, n)
}

// add counts a value that belongs into the bucket n times.
func (b *bucket) add(v, n int64) {
	if b.events += n; b.events == n {
		b.last = v
	} else {
		b.last = max(b.last, v)
	}
	b.edge = max(b.edge, v)
}

// bucket is the bucket of a value.
func (d *Distribution) bucket(v int64) *bucket {
	if d.value == v && d.hot != nil {
		return d.hot
	}
	n := bucketOf(v)
	page := d.pages[n>>6]
	if page == nil {
		page = new([64]bucket)
		d.pages[n>>6] = page
	}
	d.value, d.hot = v, &page[n&63]
	return d.hot
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

// Merge takes in what another distribution counted.
func (d *Distribution) Merge(o *Distribution) {
	d.Tally.merge(&o.Tally)
	for number, from := range o.pages {
		if from == nil {
			continue
		}
		if d.pages[number] == nil {
			d.pages[number] = new([64]bucket)
		}
		for i := range from {
			d.pages[number][i].merge(&from[i])
		}
	}
}

func (b *bucket) merge(o *bucket) {
	switch {
	case b.events > 0 && o.events > 0:
		b.last = max(b.last, o.last)
	case o.events > 0 || b.events+b.censored == 0:
		b.last = o.last
	case b.events == 0:
		b.last = max(b.last, o.last)
	}
	b.events += o.events
	b.censored += o.censored
	b.edge = max(b.edge, o.edge)
}

// Quantile is the smallest value that at least a share p of all values does not exceed. It is false where there are
// none.
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

// Survival is a Distribution of durations some of which are censored: what they last was not seen to end.
// [Distribution.Quantile] takes a censored one for what was seen of it, and so is biased to short ones;
// [Survival.KaplanMeier] is not. The zero value is empty.
type Survival struct {
	Distribution
	Censored int64
}

// Add counts a duration that ended, or one of which only the beginning was seen, n times.
func (s *Survival) Add(v, n int64, censored bool) {
	if !censored {
		s.Distribution.Add(v, n)
		return
	}
	v = max(v, 0)
	s.Tally.Add(v, n)
	s.Censored += n
	b := s.bucket(v)
	b.censored += n
	if b.edge = max(b.edge, v); b.events == 0 {
		b.last = b.edge
	}
}

// Merge takes in what another one counted.
func (s *Survival) Merge(o *Survival) {
	s.Distribution.Merge(&o.Distribution)
	s.Censored += o.Censored
}

// CensoredShare is the share of durations whose end was not seen; false where there are none.
func (s *Survival) CensoredShare() (float64, bool) {
	if s.Count == 0 {
		return 0, false
	}
	return float64(s.Censored) / float64(s.Count), true
}

// KaplanMeier is the duration that a share p of all is estimated not to exceed, by the product-limit estimator
// (Kaplan and Meier 1958): S(t) = Π (1 - d/n) over the durations up to t at which some ended, d being how many, of
// n that had lasted so long. Of equal durations those that ended come first. It is false where S never falls to
// 1-p: too many durations are censored then.
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

// AtLeast is a lower bound of the duration that a share p of all does not exceed: what [Survival.KaplanMeier]
// estimates, and where it cannot, the longest duration that was seen, for what is censored went on beyond it. False
// where there are none.
func (s *Survival) AtLeast(p float64) (v int64, ok bool) {
	if v, ok = s.KaplanMeier(p); ok {
		return v, true
	}
	return s.Max, s.Count > 0
}
