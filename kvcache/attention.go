package kvcache

import "math"

// Attention is a cache of keys and values, which a program changes as llama_kv_cache does. Below 0, the first and
// the end of a range of positions mean the beginning and the end.
type Attention struct{ Cache }

// NewAttention makes an empty cache.
func NewAttention(s Shape) *Attention { return &Attention{newCache(s)} }

// Row is a token that is written to a cell.
type Row struct {
	Cell int     // counted over all streams
	Pos  int32   // PosUnknown where the graph does not say
	Seqs []int32 // empty where unknown
}

// Place puts tokens into cells, as llama.cpp does before it computes a micro-batch. A cell that was in use is
// evicted first, as llama.cpp does when a window has slid past it; then it evicts what stands before that position
// in its sequence, too, so that no sequence has gaps. Cells that the cache does not have are left out; their number
// is returned.
func (c *Attention) Place(rows []Row, ns int64) (outside int) {
	var highest map[int32]int32 // positions that were overwritten
	for i := range rows {
		row := &rows[i]
		if row.Cell < 0 || row.Cell >= len(c.cells) {
			outside++
			continue
		}
		if cell := &c.cells[row.Cell]; !cell.free() {
			if cell.pos == row.Pos && cell.pos >= 0 && cell.has(row.Seqs) { // the same again
				c.note(Update, NotEvicted, row.Seqs[0], row.Pos).Written++
				continue
			}
			highest = c.overwrite(row.Cell, highest, ns)
		}
		c.fillCell(row.Cell, row.Pos, row.Seqs)
		seq := firstOf(row.Seqs)
		if seq < 0 {
			c.unseen.every()
		}
		c.join(row.Cell, &c.cells[row.Cell], seq, Written, ns)
		c.note(Allocate, NotEvicted, seq, row.Pos).Written++
	}
	for seq, pos := range highest {
		if low, _, _ := c.Range(seq); low >= 0 && low <= pos {
			c.remove(seq, low, pos+1, Overwrite, ns)
		}
	}
	return outside
}

// overwrite evicts the cell that another position comes to.
func (c *Attention) overwrite(at int, highest map[int32]int32, ns int64) map[int32]int32 {
	cell := &c.cells[at]
	if cell.doubt != 0 {
		c.evict(at, SeqRm, ns) // so it had been removed
		return highest
	}
	if cell.pos >= 0 && cell.seqs.Len() == 1 {
		if highest == nil {
			highest = map[int32]int32{}
		}
		seq := cell.seqs.lowest()
		if was, ok := highest[seq]; !ok || was < cell.pos {
			highest[seq] = cell.pos
		}
	}
	c.evict(at, Overwrite, ns)
	return highest
}

// Remove takes positions first ≤ p < end from a sequence, or for -1 from every one, as llama_memory_seq_rm does. Of
// a cell whose position is not known it is in doubt whether it was removed, unless all are.
func (c *Attention) Remove(seq, first, end int32, ns int64) {
	if first, end = bounds(first, end); first == 0 && end == math.MaxInt32 {
		c.clear(seq, ns)
	} else {
		c.remove(seq, first, end, SeqRm, ns)
	}
}

func (c *Attention) remove(seq, first, end int32, why Reason, ns int64) {
	from, to := c.reach(seq)
	for at := from; at < to; at++ {
		cell := &c.cells[at]
		switch {
		case cell.free() || seq >= 0 && !cell.seqs.Has(seq):
		case cell.pos == PosUnknown:
			if cell.doubt == 0 {
				cell.doubt = ns
			}
		case !cell.inRange(first, end):
		case seq < 0:
			c.evict(at, why, ns)
		default:
			c.drop(at, seq, why, ns)
		}
	}
}

// Copy gives the cells of positions first ≤ p < end of one sequence to another one too, as llama_memory_seq_cp
// does. Where each sequence has a stream, the other stream is overwritten by a copy.
func (c *Attention) Copy(from, to, first, end int32, ns int64) {
	first, end = bounds(first, end)
	switch {
	case from == to:
		return
	case c.streamOf(from) != c.streamOf(to):
		c.copyStream(from, to, ns)
	default:
		for at := range c.cells {
			cell := &c.cells[at]
			inside := cell.inRange(first, end) || cell.pos == PosUnknown && first == 0 && end == math.MaxInt32
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
func (c *Attention) copyStream(from, to int32, ns int64) {
	source, target := c.streamOf(from)*c.Size, c.streamOf(to)*c.Size
	for i := range c.Size {
		if !c.cells[target+i].free() {
			c.evict(target+i, Overwrite, ns)
		}
	}
	moment := &Moment{NS: ns}
	for i := range c.Size {
		cell, copied := &c.cells[source+i], &c.cells[target+i]
		if !cell.seqs.Has(from) {
			continue
		}
		c.fillCell(target+i, cell.pos, []int32{to})
		if cell.doubt != 0 {
			copied.doubt = ns
		}
		c.join(target+i, copied, to, Copied, ns)
		c.note(Allocate, NotEvicted, to, cell.pos)
		for g := range c.groups {
			c.of[source+i].Touches[g].read(1, moment)
			c.of[target+i].Touches[g].write(1, moment)
		}
	}
	c.unseen.set(to, false)
}

// Confirm takes in what a token of a sequence was allowed to read: each of these cells is one of the sequence.
// Cells that nobody saw are found by it, those whose removal was in doubt are still there, or gone if the token was
// not allowed to read them. With window, the token does not see all cells of its sequence, so that nothing follows
// from what it does not see. It returns how many cells it found.
func (c *Attention) Confirm(seq int32, cells *Bitmap, window bool, ns int64) (found int) {
	if seq < 0 || seq >= maxSeqs {
		return 0
	}
	from, to := c.reach(seq)
	for at := from; at < to; at++ {
		cell, sees := &c.cells[at], cells.has(at-from)
		switch {
		case sees && cell.free():
			found++
			c.fillCell(at, PosUnknown, []int32{seq})
			c.join(at, cell, seq, Found, 0)
			c.note(Allocate, Loaded, seq, PosUnknown)
			c.unseen.set(seq, true)
		case sees && !cell.seqs.Has(seq):
			found++
			c.give(at, seq)
			cell.doubt = 0
		case sees:
			cell.doubt = 0
		case (cell.doubt != 0 || cell.pos == PosUnknown) && cell.seqs.Has(seq) && !window:
			c.drop(at, seq, SeqRm, ns)
		}
	}
	return found
}

// Attend notes that a graph's attention reads the first width cells of some streams, of which its tokens may read some.
// Without streams it is not known which. No cells are counted then, nor while a sequence may have cells that nobody
// saw.
func (c *Attention) Attend(streams []int, width int, readable map[int]*Bitmap) {
	c.attended.OfGraphs++
	width = min(width, c.Size)
	if len(streams) == 0 || width <= 0 || c.unseen.all || len(c.unseen.seqs) > 0 {
		return
	}
	c.attended.Graphs++
	for _, stream := range streams {
		c.attendStream(stream, width, readable[stream])
	}
}

func (c *Attention) attendStream(stream, width int, readable *Bitmap) {
	used := c.used
	if c.Streams > 1 {
		used = c.counts[stream] // its only sequence
	}
	last := width - 1
	for last >= 0 && c.cells[stream*c.Size+last].free() {
		last--
	}
	c.attended.Cells += int64(width)
	c.attended.Readable += int64(readable.Len())
	c.attended.Free += int64(max(0, last+1-used))
}

// NeedsProof reports whether a sequence has cells that only Confirm can find, or n readable cells are not what it
// is known to have.
func (c *Attention) NeedsProof(seq int32, n int, window bool) bool {
	return c.unseen.has(seq) || !window && n != c.Count(seq) || n > c.Count(seq)
}

// Doubtful reports whether a sequence has cells of which it is in doubt whether they were removed.
func (c *Attention) Doubtful(seq int32) bool {
	from, to := c.reach(max(seq, 0))
	for at := from; at < to; at++ {
		if cell := &c.cells[at]; cell.doubt != 0 && cell.seqs.Has(seq) {
			return true
		}
	}
	return false
}
