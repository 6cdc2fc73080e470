package kvcache

import "math/bits"

// Bitmap is a set of the cells of one stream.
type Bitmap struct {
	words []uint64
	n     int // cells
}

// Reset empties the set, for streams of n cells.
func (b *Bitmap) Reset(n int) {
	words := (n + 63) / 64
	if cap(b.words) < words {
		b.words = make([]uint64, words)
	}
	b.words, b.n = b.words[:words], n
	clear(b.words)
}

// Add puts cells first ≤ cell < end in. Cells that the stream does not have are left out.
func (b *Bitmap) Add(first, end int) {
	first, end = max(first, 0), min(end, b.n)
	for first < end {
		word, bit := first>>6, first&63
		n := min(64-bit, end-first)
		mask := ^uint64(0)
		if n < 64 {
			mask = 1<<n - 1
		}
		b.words[word] |= mask << bit
		first += n
	}
}

// Len is the number of cells.
func (b *Bitmap) Len() (n int) {
	for _, word := range b.words {
		n += bits.OnesCount64(word)
	}
	return n
}

func (b *Bitmap) has(cell int) bool { return b.words[cell>>6]>>(cell&63)&1 != 0 }

// count is the number of cells first ≤ cell < end.
func (b *Bitmap) count(first, end int) (n int) {
	for first < end {
		bit := first & 63
		k := min(64-bit, end-first)
		word := b.words[first>>6] >> bit
		if k < 64 {
			word &= 1<<k - 1
		}
		n += bits.OnesCount64(word)
		first += k
	}
	return n
}

// Read says that the parts of a group were read n times in an execution: those cells of a stream that some token of
// it was allowed to read.
func (c *Cache) Read(group, stream int, cells *Bitmap, m *Moment, n int64) {
	if stream < 0 || stream >= c.Streams {
		return
	}
	per := c.BlocksPerStream()
	for block := stream * per; block < (stream+1)*per; block++ {
		if c.blocks[block] == nil {
			continue
		}
		first, end := c.blockCells(block)
		offset := stream * c.Size
		switch readable := cells.count(first-offset, end-offset); {
		case readable == 0:
		case readable == end-first:
			for l := c.blocks[block]; l != nil; l = l.next {
				l.Touches[group].read(n*int64(l.alive), m)
			}
		default:
			for at := first; at < end; at++ {
				if cells.has(at-offset) && c.cells[at].life != nil {
					c.cells[at].life.Touches[group].read(n, m)
				}
			}
		}
	}
}

// Confirm takes in what a token of a sequence was allowed to read: each of these cells is one of the sequence.
// Cells that nobody saw are found by it, those whose removal was in doubt are still there, or gone if the token was
// not allowed to read them. With window, the token does not see all cells of its sequence, so that nothing follows
// from what it does not see. ns is CLOCK_MONOTONIC. It returns how many cells it found.
func (c *Cache) Confirm(seq int32, cells *Bitmap, window bool, ns int64) (found int) {
	if seq < 0 || seq >= MaxSeqs {
		return 0
	}
	offset := c.streamOf(seq) * c.Size
	for i := range c.Size {
		cell, sees := &c.cells[offset+i], cells.has(i)
		switch {
		case sees && cell.free():
			found++
			c.take(offset+i, PosUnknown, []int32{seq})
			c.join(offset+i, seq, Found, 0)
			c.unseen.set(seq, true)
		case sees && !cell.seqs.Has(seq):
			found++
			c.give(offset+i, seq)
			cell.doubt = 0
		case sees:
			cell.doubt = 0
		case (cell.doubt != 0 || cell.pos == PosUnknown) && cell.seqs.Has(seq) && !window:
			c.drop(offset+i, seq, SeqRm, ns)
		}
	}
	return found
}

// NeedsProof reports whether a sequence has cells that only Confirm can find, or n readable cells are not what it
// is known to have.
func (c *Cache) NeedsProof(seq int32, n int, window bool) bool {
	return c.unseen.has(seq) || !window && n != c.Count(seq) || n > c.Count(seq)
}

// Doubtful reports whether a sequence has cells of which it is in doubt whether they were removed.
func (c *Cache) Doubtful(seq int32) bool {
	for i := range c.stream(c.streamOf(seq)) {
		if cell := &c.cells[c.streamOf(seq)*c.Size+i]; cell.doubt != 0 && cell.seqs.Has(seq) {
			return true
		}
	}
	return false
}
