package filemap

import (
	"math/bits"
)

// Each power of two is cut into parts of equal width, so that a bound is at most 1/32 above a value.
const (
	partBits = 5
	parts    = 1 << partBits
)

// spread counts single waits finely enough for percentiles, in constant memory.
type spread struct {
	counts [(64 - partBits + 1) * parts]uint32
	n      uint64
	max    int64
}

func part(ns int64) int {
	v := uint64(ns)
	if v < parts {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - partBits
	return (shift+1)<<partBits + int(v>>shift&(parts-1))
}

// bound is the largest value of a part.
func bound(i int) int64 {
	if i < parts {
		return int64(i)
	}
	shift := i>>partBits - 1
	return int64(uint64(parts+i&(parts-1)+1)<<shift - 1)
}

func (s *spread) add(ns int64) {
	ns = max(ns, 0)
	s.counts[part(ns)]++
	s.n++
	s.max = max(s.max, ns)
}

// percentile is an upper bound of the value below which p percent lie; 0 of none.
func (s *spread) percentile(p float64) int64 {
	want, seen := uint64(max(1, p/100*float64(s.n)+0.999999)), uint64(0)
	if s.n == 0 {
		return 0
	}
	for i, c := range s.counts {
		if seen += uint64(c); seen >= want {
			return min(bound(i), s.max)
		}
	}
	return s.max
}

// span is a stretch of time.
type span struct{ from, to int64 }

// cover is the time that is covered by at least one of many spans, which come roughly in the order of their ends.
// It keeps the newest of them; what is older is summed up, and a span that reaches back before that counts from
// there.
type cover struct {
	spans []span // apart from each other, in order
	sum   int64
	floor int64
}

// maxSpans bounds the memory of a cover.
const maxSpans = 1024

func (c *cover) add(from, to int64) {
	if from = max(from, c.floor); to <= from {
		return
	}
	i := len(c.spans)
	for i > 0 && c.spans[i-1].from > to {
		i--
	}
	// The spans before i begin at or before to; those among them that reach from are one with it.
	j := i
	for j > 0 && c.spans[j-1].to >= from {
		j--
		from, to = min(from, c.spans[j].from), max(to, c.spans[j].to)
	}
	if j < i {
		c.spans[j] = span{from, to}
		c.spans = append(c.spans[:j+1], c.spans[i:]...)
		return
	}
	c.spans = append(c.spans, span{})
	copy(c.spans[i+1:], c.spans[i:])
	c.spans[i] = span{from, to}
	if len(c.spans) > maxSpans {
		half := maxSpans / 2
		for _, s := range c.spans[:half] {
			c.sum += s.to - s.from
		}
		c.floor = c.spans[half-1].to
		c.spans = c.spans[:copy(c.spans, c.spans[half:])]
	}
}

// total is the time that is covered.
func (c *cover) total() int64 {
	n := c.sum
	for _, s := range c.spans {
		n += s.to - s.from
	}
	return n
}
