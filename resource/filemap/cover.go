package filemap

// span is a stretch of time.
type span struct{ from, to int64 }

// cover is the time that is covered by at least one of many spans, which come roughly in the order of their ends. It
// keeps the newest of them; what is older is summed up, and a span that reaches back before that counts from there.
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

// total returns the time that is covered.
func (c *cover) total() int64 {
	n := c.sum
	for _, s := range c.spans {
		n += s.to - s.from
	}
	return n
}
