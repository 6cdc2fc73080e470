//go:build llama

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// EmbeddingWidth is the number of values of an embedding.
func (m *Model) EmbeddingWidth() int { return int(C.llama_model_n_embd_out(m.c)) }

// Pooling is how the context makes one embedding of the tokens of a sequence.
func (x *Context) Pooling() Pooling { return Pooling(C.llama_pooling_type(x.c)) }

// Embedding is the embedding of output i of the last batch: its index in the batch, or -1 for the last output; with
// PoolNone. The slice is C memory, Model.EmbeddingWidth values, and valid until the next call on this context. It waits
// for the result.
func (x *Context) Embedding(i int) ([]float32, error) {
	return x.embedding(C.llama_get_embeddings_ith(x.c, C.int32_t(i)), "output", i)
}

// SequenceEmbedding is the embedding of a sequence of the last batch, with any pooling but PoolNone; with PoolRank it
// is the sequence's scores, Model.Classes of them. The slice is as Embedding's.
func (x *Context) SequenceEmbedding(seq Seq) ([]float32, error) {
	return x.embedding(C.llama_get_embeddings_seq(x.c, C.llama_seq_id(seq)), "sequence", int(seq))
}

func (x *Context) embedding(p *C.float, of string, i int) ([]float32, error) {
	if p == nil {
		return nil, fmt.Errorf("read the embedding of %s %d: %w", of, i, ErrNoEmbedding)
	}
	width := x.model.EmbeddingWidth()
	if x.Pooling() == PoolRank {
		width = x.model.Classes()
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), width), nil
}
