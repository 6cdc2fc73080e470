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
