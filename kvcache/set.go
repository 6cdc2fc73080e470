package kvcache

import (
	"iter"
	"math/bits"
)

// maxSeqs is how many sequences llama.cpp knows at most.
const maxSeqs = 256

// seqSet is a set of sequences.
type seqSet [maxSeqs / 64]uint64

// Has reports whether a sequence is in the set.
func (s *seqSet) Has(seq int32) bool {
	return seq >= 0 && seq < maxSeqs && s[seq>>6]>>(seq&63)&1 != 0
}

// Add puts a sequence in. It returns false if it was there, or is none.
func (s *seqSet) Add(seq int32) bool {
	if seq < 0 || seq >= maxSeqs || s.Has(seq) {
		return false
	}
	s[seq>>6] |= 1 << (seq & 63)
	return true
}

// drop takes a sequence out.
func (s *seqSet) drop(seq int32) {
	if s.Has(seq) {
		s[seq>>6] &^= 1 << (seq & 63)
	}
}

// Len is the number of sequences.
func (s *seqSet) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// lowest is the first sequence, -1 where there is none.
func (s *seqSet) lowest() int32 {
	for seq := range s.all() {
		return seq
	}
	return -1
}

// empty reports whether there is none.
func (s *seqSet) empty() bool { return *s == seqSet{} }

// all are the sequences, in order.
func (s *seqSet) all() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(int32(i*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}
