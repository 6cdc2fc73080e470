//go:build llama

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Batch holds the tokens of one Decode in C memory. It belongs to one goroutine at a time.
type Batch struct {
	c         C.struct_llama_batch
	capacity  int
	sequences int
}

// NewBatch makes a batch for at most capacity tokens, each of at most sequences sequences; both at least 1.
func NewBatch(capacity, sequences int) (*Batch, error) {
	if capacity < 1 || sequences < 1 {
		return nil, fmt.Errorf("make a batch: %w: capacity %d and %d sequences", ErrBatch, capacity, sequences)
	}
	return &Batch{c: C.llama_batch_init(C.int32_t(capacity), 0, C.int32_t(sequences)), capacity: capacity,
		sequences: sequences}, nil
}

// Add appends one token at a position of one or several sequences. output asks for logits of what follows it.
func (b *Batch) Add(token Token, pos Pos, output bool, sequences ...Seq) error {
	i := int(b.c.n_tokens)
	switch {
	case b.capacity == 0:
		return fmt.Errorf("add to a batch: %w", ErrClosed)
	case i == b.capacity:
		return fmt.Errorf("add to a batch: %w: it holds %d tokens already", ErrBatch, i)
	case len(sequences) == 0 || len(sequences) > b.sequences:
		return fmt.Errorf("add to a batch: %w: %d sequences, and it was made for 1 to %d", ErrBatch, len(sequences),
			b.sequences)
	}
	at(b.c.token, i, C.llama_token(token))
	at(b.c.pos, i, C.llama_pos(pos))
	at(b.c.n_seq_id, i, C.int32_t(len(sequences)))
	ids := unsafe.Slice(b.c.seq_id, i+1)[i]
	for j, seq := range sequences {
		at(ids, j, C.llama_seq_id(seq))
	}
	var wanted C.int8_t
	if output {
		wanted = 1
	}
	at(b.c.logits, i, wanted)
	b.c.n_tokens++
	return nil
}

// at stores a value in a C array.
func at[T any](array *T, i int, value T) { unsafe.Slice(array, i+1)[i] = value }

// Len is the number of tokens.
func (b *Batch) Len() int { return int(b.c.n_tokens) }

// Reset empties the batch.
func (b *Batch) Reset() { b.c.n_tokens = 0 }

// Close frees the batch.
func (b *Batch) Close() {
	if b.capacity > 0 {
		C.llama_batch_free(b.c)
		*b = Batch{}
	}
}
