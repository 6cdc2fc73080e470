package analyze

import "math/bits"

// mostBins is how many bins of time there are at most.
const mostBins = 240

// clockBins cut time into bins of equal length, which doubles when there are too many. Bins begin at multiples of
// their length, so that two become one whatever came first.
type clockBins struct {
	width       int64 // ns, a power of two
	first, last int64 // numbers of the bins that there are; last < first: none
	begun       bool
	rows        []*binRows
}

// binRows is what was touched in rows of a panel, by bin from the first on.
type binRows struct {
	of   *clockBins
	rows int
	bins [][]float64 // by number - of.first
}

// hold makes sure that there is a bin for a time, and returns its number.
func (c *clockBins) hold(ns int64) int64 {
	n := ns / c.width
	if !c.begun {
		c.first, c.last, c.begun = n, n-1, true
	}
	if n >= c.first && n <= c.last {
		return n
	}
	first, last := min(c.first, n), max(c.last, n)
	for last-first >= mostBins {
		c.halve()
		n /= 2
		first, last = min(c.first, n), max(c.last, n)
	}
	c.grow(first, last)
	return n
}

// halve makes two bins one.
func (c *clockBins) halve() {
	first, last := c.first/2, c.last/2
	for _, r := range c.rows {
		merged := make([][]float64, max(last-first+1, 0))
		for i, bin := range r.bins {
			at := (c.first+int64(i))/2 - first
			switch {
			case bin == nil:
			case merged[at] == nil:
				merged[at] = bin
			default:
				for k, v := range bin {
					merged[at][k] += v
				}
			}
		}
		r.bins = merged
	}
	if c.last < c.first { // none yet
		last = first - 1
	}
	c.first, c.last, c.width = first, last, 2*c.width
}

// grow makes room for bins from first to last.
func (c *clockBins) grow(first, last int64) {
	for _, r := range c.rows {
		bins := make([][]float64, last-first+1)
		copy(bins[c.first-first:], r.bins)
		r.bins = bins
	}
	c.first, c.last = first, last
}

func (c *clockBins) bins() int {
	if !c.begun {
		return 0
	}
	return int(c.last - c.first + 1)
}

// begin is when the first bin begins.
func (c *clockBins) begin() int64 { return c.first * c.width }

// panel adds a panel with so many rows.
func (c *clockBins) panel(rows int) *binRows {
	r := &binRows{of: c, rows: rows}
	r.bins = make([][]float64, c.bins())
	c.rows = append(c.rows, r)
	return r
}

// at is the rows of a bin.
func (r *binRows) at(n int64) []float64 {
	bin := &r.bins[n-r.of.first]
	if *bin == nil {
		*bin = make([]float64, r.rows)
	}
	return *bin
}

// heatRows is how many rows a panel has.
const heatRows = 64

// mostGrains is how many pieces of a type's memory are distinguished in working sets.
const mostGrains = 1 << 22

// placed gathers what was touched of a type of regions.
type placed struct {
	kind      string
	space     *space
	rows      int
	heat      *binRows
	shift     uint // a grain is 1 << shift bytes
	seen      []uint64
	grains    int64 // of seen
	window    int64 // ns
	current   int64 // number of the window
	sets      []set
	isTouched bool
}

// set is how many bytes were touched in a window.
type set struct{ window, bytes int64 }

func newPlaced(kind string, s *space, window int64) *placed {
	p := &placed{kind: kind, space: s, rows: heatRows, window: window, shift: 6}
	for s.bytes>>p.shift > mostGrains {
		p.shift++
	}
	p.seen = make([]uint64, s.bytes>>p.shift/64+1)
	return p
}

// access is a row of the trace on the axis of its type.
type access struct {
	ns         int64
	axis, left uint64 // left is what the piece of the axis holds from there on
	size       uint64
	pieces     int64
	stride     uint64
}

// touch takes an access in.
func (p *placed) touch(c *clockBins, a *access) {
	if p.heat == nil {
		p.heat = c.panel(p.rows)
	}
	p.isTouched = true
	n := c.hold(a.ns)
	bin := p.heat.at(n)
	each := a.size / uint64(a.pieces)
	span := min(each, a.left)
	if a.pieces > 1 {
		span = min(uint64(a.pieces-1)*a.stride+each, a.left)
	}
	p.warm(bin, a.axis, span, float64(a.size))
	if w := a.ns / p.window; w > p.current {
		p.close()
		p.current = w
	}
	if a.pieces == 1 || a.stride <= 1<<p.shift {
		p.mark(a.axis, span)
		return
	}
	for i := range uint64(a.pieces) {
		if i*a.stride >= a.left {
			break
		}
		p.mark(a.axis+i*a.stride, min(each, a.left-i*a.stride))
	}
}

// warm spreads bytes evenly over a piece of the axis.
func (p *placed) warm(bin []float64, axis, span uint64, bytes float64) {
	if span == 0 {
		return
	}
	row := float64(p.space.bytes) / float64(p.rows)
	from, to := float64(axis)/row, float64(axis+span)/row
	density := bytes / (to - from)
	for i := int(from); i < p.rows && float64(i) < to; i++ {
		bin[i] += density * (min(to, float64(i+1)) - max(from, float64(i)))
	}
}

// mark notes which grains were touched.
func (p *placed) mark(axis, span uint64) {
	if span == 0 {
		return
	}
	first, last := axis>>p.shift, (axis+span-1)>>p.shift
	for word := first / 64; word <= last/64; word++ {
		mask := ^uint64(0)
		if word == first/64 {
			mask <<= first % 64
		}
		if word == last/64 {
			mask &= ^uint64(0) >> (63 - last%64)
		}
		p.grains += int64(bits.OnesCount64(mask &^ p.seen[word]))
		p.seen[word] |= mask
	}
}

// close ends a window.
func (p *placed) close() {
	if p.grains > 0 {
		p.sets = append(p.sets, set{p.current, min(p.grains<<p.shift, int64(p.space.bytes))})
		clear(p.seen)
	}
	p.grains = 0
}

func (p *placed) finish() { p.close() }

// working is how many bytes were touched by window, from the one on that holds a time.
func (p *placed) working(begin int64) []float64 {
	first := begin / p.window
	all := make([]float64, 0, len(p.sets))
	for _, s := range p.sets {
		at := s.window - first
		for int64(len(all)) <= at {
			all = append(all, 0)
		}
		if at >= 0 {
			all[at] += float64(s.bytes)
		}
	}
	return all
}

// cells are the panel's cells, row by row.
func (p *placed) cells(c *clockBins) []float64 {
	n := c.bins()
	all := make([]float64, p.rows*n)
	for b, bin := range p.heat.bins {
		for row, v := range bin {
			all[row*n+b] = v
		}
	}
	return all
}
