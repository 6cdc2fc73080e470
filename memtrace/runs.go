package memtrace

import "slices"

// run is a stretch of memory of which all bytes have the same in common.
type run[V comparable] struct {
	start, end uint64
	is         V
}

func (g run[V]) within(start, end uint64) run[V] {
	return run[V]{max(g.start, start), min(g.end, end), g.is}
}

// runs say what bytes have in common, by address. They are disjoint; of what lies between nothing is known. Putting
// takes time that grows with the logarithm of their number, and with that of those that are replaced: each of them
// is replaced once.
type runs[V comparable] struct {
	chunks [][]run[V] // none is empty
	n      int
	room   int // number from which on neighbours are looked for that are alike
}

const (
	minRoom  = 64  // runs, before anybody looks for those that are alike
	maxChunk = 256 // runs in a chunk, so that little moves when one comes between
)

// search is the first run that ends after a place: chunk and number in it.
func (r *runs[V]) search(at uint64) (chunk, i int) {
	low, high := 0, len(r.chunks)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if all := r.chunks[middle]; all[len(all)-1].end > at {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if chunk = low; chunk == len(r.chunks) {
		return chunk, 0
	}
	all := r.chunks[chunk]
	low, high = 0, len(all)-1
	for low < high {
		if middle := int(uint(low+high) >> 1); all[middle].end > at {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return chunk, low
}

// exact is the run of just these bytes; nil: there is none.
func (r *runs[V]) exact(start, end uint64) *run[V] {
	if c, i := r.search(start); c < len(r.chunks) {
		if g := &r.chunks[c][i]; g.start == start && g.end == end {
			return g
		}
	}
	return nil
}

// put makes bytes start ≤ b < end alike, and appends what they were to old, cut to them.
func (r *runs[V]) put(start, end uint64, v V, old []run[V]) []run[V] {
	c, i := r.search(start)
	if c < len(r.chunks) {
		if g := &r.chunks[c][i]; g.start == start && g.end == end {
			old = append(old, *g)
			g.is = v
			return old
		}
	}
	return r.splice(c, i, run[V]{start, end, v}, true, old)
}

// cutOut forgets bytes, and appends what they were to old.
func (r *runs[V]) cutOut(start, end uint64, old []run[V]) []run[V] {
	c, i := r.search(start)
	return r.splice(c, i, run[V]{start: start, end: end}, false, old)
}

// get appends what bytes are to old, cut to them.
func (r *runs[V]) get(start, end uint64, old []run[V]) []run[V] {
	for c, i := r.search(start); c < len(r.chunks); c, i = c+1, 0 {
		for ; i < len(r.chunks[c]); i++ {
			g := &r.chunks[c][i]
			if g.start >= end {
				return old
			}
			old = append(old, g.within(start, end))
		}
	}
	return old
}

// splice replaces the runs that lie in another one, from run i of chunk c on, by that one, or by nothing.
func (r *runs[V]) splice(c, i int, by run[V], keep bool, old []run[V]) []run[V] {
	var fresh [3]run[V]
	n := 0
	if c < len(r.chunks) {
		if g := r.chunks[c][i]; g.start < by.start {
			fresh[n] = run[V]{g.start, by.start, g.is}
			n++
		}
	}
	if keep {
		fresh[n] = by
		n++
	}
	last, k := c, i // after those that are replaced
	var tail run[V]
	for ; last < len(r.chunks); last, k = last+1, 0 {
		all := r.chunks[last]
		for ; k < len(all) && all[k].start < by.end; k++ {
			old = append(old, all[k].within(by.start, by.end))
			tail = all[k]
		}
		if k < len(all) {
			break
		}
	}
	if tail.end > by.end {
		fresh[n] = run[V]{by.end, tail.end, tail.is}
		n++
	}
	r.replace(c, i, last, k, fresh[:n])
	return old
}

// replace puts others in the place of the runs from number i of chunk c to before number k of chunk last.
func (r *runs[V]) replace(c, i, last, k int, by []run[V]) {
	if c == len(r.chunks) { // at the end
		if c == 0 {
			r.chunks = append(r.chunks, nil)
		} else {
			c--
		}
		i = len(r.chunks[c])
		last, k = c, i
	}
	if c < last {
		if last < len(r.chunks) {
			r.chunks[last] = insert(r.chunks[last], 0, k, nil)
			r.n -= k
		}
		for at := c + 1; at < last; at++ {
			r.n -= len(r.chunks[at])
		}
		r.chunks = slices.Delete(r.chunks, c+1, last)
		k = len(r.chunks[c])
	}
	r.n += len(by) - (k - i)
	if i == maxChunk && c == len(r.chunks)-1 { // at the end, as they often come
		r.chunks = append(r.chunks, make([]run[V], 0, maxChunk+3))
		c, i, k = c+1, 0, 0
	}
	r.chunks[c] = insert(r.chunks[c], i, k, by)
	switch n := len(r.chunks[c]); {
	case n == 0:
		r.chunks = slices.Delete(r.chunks, c, c+1)
	case n > maxChunk:
		half := append(make([]run[V], 0, maxChunk+3), r.chunks[c][n/2:]...)
		r.chunks[c] = r.chunks[c][:n/2]
		r.chunks = slices.Insert(r.chunks, c+1, half)
	}
	if r.n > max(r.room, minRoom) {
		r.compact()
	}
}

// insert puts others in the place of elements i to k-1.
func insert[T any](all []T, i, k int, by []T) []T {
	more := len(by) - (k - i)
	if more > 0 {
		last := len(all)
		all = slices.Grow(all, more)[:last+more]
		copy(all[k+more:], all[k:last])
	} else if more < 0 {
		all = append(all[:k+more], all[k:]...)
	}
	copy(all[i:], by)
	return all
}

// compact makes one of neighbours that are alike.
func (r *runs[V]) compact() {
	if !r.isLoose() {
		r.room = 2 * r.n
		return
	}
	old := r.chunks
	r.chunks, r.n = nil, 0
	var all []run[V]
	for _, chunk := range old {
		for _, g := range chunk {
			if n := len(all); n > 0 && all[n-1].end == g.start && all[n-1].is == g.is {
				all[n-1].end = g.end
				continue
			}
			if len(all) == maxChunk*3/4 {
				r.chunks, r.n, all = append(r.chunks, all), r.n+len(all), nil
			}
			if all == nil {
				all = make([]run[V], 0, maxChunk+3)
			}
			all = append(all, g)
		}
	}
	if len(all) > 0 {
		r.chunks, r.n = append(r.chunks, all), r.n+len(all)
	}
	r.room = 2 * r.n
}

// isLoose reports whether any neighbours are alike.
func (r *runs[V]) isLoose() bool {
	var last *run[V]
	for _, chunk := range r.chunks {
		for i := range chunk {
			g := &chunk[i]
			if last != nil && last.end == g.start && last.is == g.is {
				return true
			}
			last = g
		}
	}
	return false
}

// each calls f for all runs, which it may change without moving them.
func (r *runs[V]) each(f func(*run[V])) {
	for _, chunk := range r.chunks {
		for i := range chunk {
			f(&chunk[i])
		}
	}
}

// span is from the first byte past the last; both 0 where there is none.
func (r *runs[V]) span() (start, end uint64) {
	if len(r.chunks) == 0 {
		return 0, 0
	}
	last := r.chunks[len(r.chunks)-1]
	return r.chunks[0][0].start, last[len(last)-1].end
}

// isAligned reports whether runs begin and end at multiples of a size from base on.
func (r *runs[V]) isAligned(base, size uint64) bool {
	r.compact()
	aligned := true
	r.each(func(g *run[V]) {
		aligned = aligned && g.start >= base && (g.start-base)%size == 0 && (g.end-base)%size == 0
	})
	return aligned
}

// shrink moves runs to where they lie from 0 on if everything is smaller.
func (r *runs[V]) shrink(base, by uint64) {
	r.each(func(g *run[V]) { g.start, g.end = (g.start-base)/by, (g.end-base)/by })
}
