package kvcache

import "math"

// What a program does to the sequences of a cache of attention, as llama_kv_cache does it. Those of recurrent
// states are in states.go. Below 0, first and end mean the beginning and the end. ns is CLOCK_MONOTONIC.

func bounds(first, end int32) (int32, int32) {
	if end < 0 {
		end = math.MaxInt32
	}
	return max(first, 0), end
}

// Remove takes positions first ≤ p < end from a sequence, or for -1 from every one, as llama_memory_seq_rm does. Of
// a cell whose position is not known it is in doubt whether it was removed, unless all are.
func (c *Cache) Remove(seq, first, end int32, ns int64) {
	first, end = bounds(first, end)
	whole := first == 0 && end == math.MaxInt32
	why := SeqRm
	if seq < 0 && whole {
		why = Clear
	}
	if c.Kind == Recurrent {
		c.removeState(seq, first, end, why, ns)
	} else {
		c.remove(seq, first, end, why, ns)
	}
	if whole && seq < 0 {
		c.unseen.none()
	} else if whole {
		c.unseen.set(seq, false)
	}
}

func (c *Cache) remove(seq, first, end int32, why Reason, ns int64) {
	from, to := 0, len(c.cells)
	if seq >= 0 {
		from = c.streamOf(seq) * c.Size
		to = from + c.Size
	}
	whole := first == 0 && end == math.MaxInt32
	for at := from; at < to; at++ {
		cell := &c.cells[at]
		switch {
		case cell.free() || seq >= 0 && !cell.seqs.Has(seq):
		case cell.pos == PosUnknown && !whole:
			if cell.doubt == 0 {
				cell.doubt = ns
			}
		case cell.pos != PosUnknown && !cell.in(first, end):
		case seq < 0:
			c.evict(at, why, ns)
		default:
			c.drop(at, seq, why, ns)
		}
	}
}

// Copy gives the cells of positions first ≤ p < end of one sequence to another one too, as llama_memory_seq_cp
// does. Where each sequence has a stream, the other stream is overwritten by a copy.
func (c *Cache) Copy(from, to, first, end int32, ns int64) {
	first, end = bounds(first, end)
	switch {
	case from == to:
		return
	case c.Kind == Recurrent:
		c.copyState(from, to, ns)
	case c.streamOf(from) != c.streamOf(to):
		c.copyStream(from, to, ns)
	default:
		for at := range c.cells {
			cell := &c.cells[at]
			inside := cell.in(first, end) || cell.pos == PosUnknown && first == 0 && end == math.MaxInt32
			if inside && cell.seqs.Has(from) && c.give(at, to) {
				c.note(Update, NotEvicted, to, cell.pos)
			}
		}
	}
	if c.unseen.has(from) {
		c.unseen.set(to, true)
	}
}

// copyStream overwrites the stream of a sequence by that of another one: all its cells become those of the first
// that have the other.
func (c *Cache) copyStream(from, to int32, ns int64) {
	source, target := c.streamOf(from)*c.Size, c.streamOf(to)*c.Size
	for i := range c.Size {
		if !c.cells[target+i].free() {
			c.evict(target+i, Overwrite, ns)
		}
	}
	moment := &Moment{NS: ns}
	for i := range c.Size {
		cell := &c.cells[source+i]
		if !cell.seqs.Has(from) {
			continue
		}
		c.take(target+i, cell.pos, []int32{to})
		if cell.doubt != 0 {
			c.cells[target+i].doubt = ns
		}
		c.join(target+i, to, Copied, ns)
		c.note(Allocate, NotEvicted, to, cell.pos)
		for g := range c.groups {
			cell.life.Touches[g].read(1, moment)
			c.cells[target+i].life.Touches[g].write(1, moment)
		}
	}
	c.unseen.set(to, false)
}

// Keep removes every other sequence, as llama_memory_seq_keep does: where each has a stream, only those of the same
// stream.
func (c *Cache) Keep(seq int32, ns int64) {
	from, to := 0, len(c.cells)
	if c.Kind != Recurrent {
		from = c.streamOf(seq) * c.Size
		to = from + c.Size
	}
	for at := from; at < to; at++ {
		cell := &c.cells[at]
		switch {
		case cell.free():
		case !cell.seqs.Has(seq):
			c.evict(at, SeqKeep, ns)
		default:
			for other := range cell.seqs.All() {
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

// Add adds delta to positions first ≤ p < end of a sequence, as llama_memory_seq_add does: a move. A cell whose
// position falls below 0 is removed.
func (c *Cache) Add(seq, first, end, delta int32, ns int64) {
	if delta != 0 {
		c.move(seq, first, end, func(pos int32) int32 { return pos + delta }, ns)
	}
}

// Divide divides positions first ≤ p < end of a sequence by d, as llama_memory_seq_div does.
func (c *Cache) Divide(seq, first, end, d int32, ns int64) {
	if d > 1 {
		c.move(seq, first, end, func(pos int32) int32 { return pos / d }, ns)
	}
}

func (c *Cache) move(seq, first, end int32, to func(int32) int32, ns int64) {
	first, end = bounds(first, end)
	moved := map[*Life]bool{}
	for at := range c.cells {
		cell := &c.cells[at]
		if !cell.seqs.Has(seq) || !cell.in(first, end) {
			continue
		}
		pos := to(cell.pos)
		if pos < 0 {
			c.evict(at, SeqRm, ns)
			continue
		}
		cell.pos = pos
		moved[cell.life] = true
		c.note(Update, NotEvicted, seq, pos)
	}
	for l := range moved {
		c.respan(l)
	}
}

// respan sets the positions of a life to those of its cells, behind a move.
func (c *Cache) respan(l *Life) {
	l.Moves++
	l.PosFirst, l.PosEnd = PosUnknown, PosUnknown
	first, end := c.blockCells(l.Block)
	for at := first; at < end; at++ {
		if c.cells[at].life == l {
			l.spans(c.cells[at].pos)
		}
	}
}

// Restore says that a state was loaded into a sequence, or for -1 into all: what was there is gone, and what is
// there now nobody saw.
func (c *Cache) Restore(seq int32, ns int64) {
	if seq < 0 {
		c.Remove(-1, -1, -1, ns)
		c.unseen.every()
		return
	}
	c.Remove(seq, -1, -1, ns)
	c.unseen.set(seq, true)
}
