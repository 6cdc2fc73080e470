package kvcache

import "math"

// Positions that are none.
const (
	noPos      = -1 // of a free cell
	PosUnknown = -2 // of a cell that is in use at an unknown position
)

// cell is a slot for one token, in every layer of the cache.
type cell struct {
	pos   int32
	doubt int64 // when positions were removed of which this may have been one; 0 = it is there
	seqs  seqSet
}

var emptyCell = cell{pos: noPos}

func (c *cell) free() bool { return c.pos == noPos }

// inRange reports whether a cell's position is first ≤ pos < end. What is unknown is in no range but the whole.
func (c *cell) inRange(first, end int32) bool { return c.pos >= first && c.pos < end }

// has reports whether a cell belongs to some sequences, and to no others.
func (c *cell) has(seqs []int32) bool {
	if c.free() || len(seqs) == 0 || c.seqs.Len() != len(seqs) {
		return false
	}
	for _, seq := range seqs {
		if !c.seqs.Has(seq) {
			return false
		}
	}
	return true
}

// Cache is the cells of one cache: which positions of which sequences they hold, their lives, and what changes.
// [Attention] and [States] say how a program changes them. It is for one goroutine. Times are of CLOCK_MONOTONIC.
type Cache struct {
	lives
	changes
	cells  []cell
	used   int
	shared int // cells of more than one sequence
	counts [maxSeqs]int
	unseen unseen
	// attended is what attention has read.
	attended Attended
}

// unseen says which sequences may have cells that nobody saw.
type unseen struct {
	all  bool
	seqs map[int32]bool // those that have while all is false, those that have not while it is true
}

func (u *unseen) has(seq int32) bool { return u.seqs[seq] != u.all }

func (u *unseen) set(seq int32, has bool) {
	switch {
	case has == u.all:
		delete(u.seqs, seq)
	case u.seqs == nil:
		u.seqs = map[int32]bool{seq: true}
	default:
		u.seqs[seq] = true
	}
}

func (u *unseen) none() { u.all = false; clear(u.seqs) }

func (u *unseen) every() { u.all = true; clear(u.seqs) }

func newCache(s Shape) Cache {
	s.settle()
	c := Cache{lives: newLives(s), cells: make([]cell, s.Cells())}
	c.Forget()
	return c
}

// Forget empties the cache as if nothing had been in it: what a program did was a set-up. No life ends.
func (c *Cache) Forget() {
	for i := range c.cells {
		c.cells[i] = emptyCell
	}
	clear(c.of)
	clear(c.blocks)
	c.used, c.shared, c.counts, c.noted, c.attended = 0, 0, [maxSeqs]int{}, c.noted[:0], Attended{}
	c.unseen.none()
}

// End ends every life, because watching ends: they are censored, not evicted. The cache is empty then.
func (c *Cache) End(ns int64) {
	for block, l := range c.blocks {
		for ; l != nil; l = c.blocks[block] {
			c.end(l, NotEvicted, ns)
		}
	}
	c.Forget()
}

// Count is the number of a sequence's cells, as far as they are known.
func (c *Cache) Count(seq int32) int {
	if seq < 0 || seq >= maxSeqs {
		return 0
	}
	return c.counts[seq]
}

// Known reports whether every cell of a sequence was seen.
func (c *Cache) Known(seq int32) bool { return !c.unseen.has(seq) }

// Range is the lowest and the highest position of a sequence, -1 and -1 where it has no cells, as
// llama_memory_seq_pos_min and _max have them. It is not known where one of the sequence's positions is not.
func (c *Cache) Range(seq int32) (low, high int32, known bool) {
	low, high, known = -1, -1, c.Known(seq)
	from, to := c.reach(max(seq, 0))
	for at := from; at < to; at++ {
		switch cell := &c.cells[at]; {
		case !cell.seqs.Has(seq):
		case cell.pos < 0 || cell.doubt != 0:
			known = false
		default:
			if low < 0 || cell.pos < low {
				low = cell.pos
			}
			high = max(high, cell.pos)
		}
	}
	return low, high, known
}

// fillCell puts a position and sequences into a free cell.
func (c *Cache) fillCell(at int, pos int32, seqs []int32) {
	cell := &c.cells[at]
	cell.pos, cell.doubt = pos, 0
	c.used++
	for _, seq := range seqs {
		c.give(at, seq)
	}
}

// give makes a cell one of a sequence, too.
func (c *Cache) give(at int, seq int32) bool {
	cell := &c.cells[at]
	if !cell.seqs.Add(seq) {
		return false
	}
	c.counts[seq]++
	n := cell.seqs.Len()
	if n == 2 {
		c.shared++
	}
	if l := c.of[at]; l != nil {
		l.Sharers = max(l.Sharers, n)
	}
	return true
}

// drop takes a cell from a sequence, and frees it if it was its last.
func (c *Cache) drop(at int, seq int32, why Reason, ns int64) {
	cell := &c.cells[at]
	if !cell.seqs.Has(seq) {
		return
	}
	if cell.seqs.Len() == 1 {
		c.evict(at, why, ns)
		return
	}
	cell.seqs.drop(seq)
	c.counts[seq]--
	if cell.seqs.Len() == 1 {
		c.shared--
	}
}

// evict frees a cell.
func (c *Cache) evict(at int, why Reason, ns int64) {
	cell := &c.cells[at]
	if cell.seqs.Len() > 1 {
		c.shared--
	}
	for seq := range cell.seqs.all() {
		c.counts[seq]--
	}
	if cell.doubt != 0 {
		ns = cell.doubt // it went when it came in doubt
	}
	c.note(Evict, why, cell.seqs.lowest(), cell.pos)
	c.leave(at, why, ns)
	c.cells[at] = emptyCell
	c.used--
}

// clear removes all positions of a sequence, or for -1 of every one.
func (c *Cache) clear(seq int32, ns int64) {
	from, to := c.reach(seq)
	for at := from; at < to; at++ {
		switch {
		case c.cells[at].free():
		case seq < 0:
			c.evict(at, Clear, ns)
		default:
			c.drop(at, seq, SeqRm, ns)
		}
	}
	if seq < 0 {
		c.unseen.none()
	} else {
		c.unseen.set(seq, false)
	}
}

// Restore records that a state was loaded into a sequence, or for -1 into all: what was there is gone, and what is
// there now nobody saw.
func (c *Cache) Restore(seq int32, ns int64) {
	if c.clear(seq, ns); seq < 0 {
		c.unseen.every()
	} else {
		c.unseen.set(seq, true)
	}
}

// Keep removes every other sequence, as llama_memory_seq_keep does: where each has a stream, only those of the same
// stream.
func (c *Cache) Keep(seq int32, ns int64) {
	from, to := c.reach(max(seq, 0))
	for at := from; at < to; at++ {
		cell := &c.cells[at]
		switch {
		case cell.free():
		case !cell.seqs.Has(seq):
			c.evict(at, SeqKeep, ns)
		default:
			for other := range cell.seqs.all() {
				if other != seq {
					c.drop(at, other, SeqKeep, ns)
				}
			}
		}
	}
	if c.Streams == 1 {
		has := c.unseen.has(seq)
		c.unseen.none()
		c.unseen.set(seq, has)
	}
}

// Move changes positions first ≤ p < end of a sequence, as llama_memory_seq_add and _div do. A cell whose position
// falls below 0 is removed.
func (c *Cache) Move(seq, first, end int32, to func(int32) int32, ns int64) {
	first, end = bounds(first, end)
	moved := map[*Life]bool{}
	for at := range c.cells {
		cell := &c.cells[at]
		if !cell.seqs.Has(seq) || !cell.inRange(first, end) {
			continue
		}
		pos := to(cell.pos)
		if pos < 0 {
			c.evict(at, SeqRm, ns)
			continue
		}
		cell.pos = pos
		moved[c.of[at]] = true
		c.note(Update, NotEvicted, seq, pos)
	}
	for l := range moved {
		l.Moves++
		l.PosFirst, l.PosEnd = PosUnknown, PosUnknown
		first, end := c.blockCells(l.Block)
		for at := first; at < end; at++ {
			if c.of[at] == l {
				widen(&l.PosFirst, &l.PosEnd, c.cells[at].pos)
			}
		}
	}
}

// bounds are the ends of a range of positions. Below 0 they mean the beginning and the end.
func bounds(first, end int32) (int32, int32) {
	if end < 0 {
		end = math.MaxInt32
	}
	return max(first, 0), end
}

// Rewrote records that all parts of some groups, of every cell, were read and written again, as a shift of positions
// does with the keys.
func (c *Cache) Rewrote(groups []int, m *Moment) {
	if len(groups) == 0 {
		return
	}
	c.eachLife(func(l *Life) {
		for _, group := range groups {
			l.Touches[group].read(int64(l.alive), m)
			l.Touches[group].write(int64(l.alive), m)
		}
	})
	for at := range c.cells {
		if cell := &c.cells[at]; !cell.free() {
			c.note(Update, NotEvicted, cell.seqs.lowest(), cell.pos).Written++
		}
	}
}

// Gauge says how the cache is used now.
func (c *Cache) Gauge(ctx uint32) Gauge {
	g := Gauge{
		Ctx: ctx, Cache: c.Kind, Streams: c.Streams, Block: c.Block, Cells: len(c.cells), Used: c.used,
		Free: len(c.cells) - c.used, Shared: c.shared, Whole: !c.unseen.all && len(c.unseen.seqs) == 0,
	}
	if c.attended.Cells > 0 {
		attended := c.attended
		g.Attended = &attended
	}
	if g.Cells > 0 {
		g.Occupancy = float64(g.Used) / float64(g.Cells)
	}
	layers := map[int32]bool{}
	for _, part := range c.Parts {
		layers[part.Layer] = true
		g.CellBytes += part.CellBytes
	}
	g.Layers = len(layers)
	number := map[int32]int{}
	for seq := range int32(maxSeqs) {
		if c.counts[seq] > 0 || !c.unseen.all && c.unseen.has(seq) {
			number[seq] = len(g.Sequences)
			g.Sequences = append(g.Sequences,
				SeqGauge{Seq: seq, Cells: c.counts[seq], PosMin: -1, PosMax: -1, Known: c.Known(seq)})
		}
	}
	for i := range c.cells {
		cell := &c.cells[i]
		several := cell.seqs.Len() > 1
		for seq := range cell.seqs.all() {
			s := &g.Sequences[number[seq]]
			if several {
				s.Shared++
			}
			if cell.pos < 0 || cell.doubt != 0 {
				s.Known = false
				continue
			}
			if s.PosMin < 0 || cell.pos < s.PosMin {
				s.PosMin = cell.pos
			}
			s.PosMax = max(s.PosMax, cell.pos)
		}
	}
	return g
}
