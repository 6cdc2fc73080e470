//go:build llama

package llama

// #include "bridge.h"
// #cgo noescape bridge_generate
// #cgo nocallback bridge_generate
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Generate decodes g.Pending, and chooses, accepts and decodes one token of g.Seq after the other, by s, until there is
// a reason to come back: tokens are full, a token ends a text, stands in g.Pause, or has no room before g.End,
// g.Patience is over, or Interrupt was called. The n tokens chosen come into tokens, and into at, of the same length,
// CLOCK_MONOTONIC in nanoseconds when each was. All but the last are decoded then; that one is g.Pending, and g.Pos is
// where it goes, so that the next call goes on.
//
// All is done in one call of C, for the reason of DecodeEach. b is a batch to work with, and loses what is in it.
// Errors are those of Decode, and then the tokens chosen before it stay and g.Pending could not be decoded; or those of
// Sample and Accept, and then there is no g.Pending.
func (x *Context) Generate(s *Sampler, b *Batch, g *Generation, tokens []Token, at []int64) (n int, err error) {
	switch {
	case x.c == nil || b.capacity == 0 || s.c.chain == nil:
		return 0, fmt.Errorf("generate: context, batch or sampler is %w", ErrClosed)
	case len(tokens) == 0 || len(at) != len(tokens):
		return 0, fmt.Errorf("generate: room for %d tokens and %d times: give both the same, at least 1",
			len(tokens), len(at))
	case len(g.Pause) != 0 && len(g.Pause) != x.model.vocab.n:
		return 0, fmt.Errorf("generate: %d tokens to pause at: the vocabulary has %d", len(g.Pause), x.model.vocab.n)
	}
	b.Reset()
	if err := b.Add(0, 0, true, g.Seq); err != nil {
		return 0, err
	}
	c := C.struct_bridge_generation{
		pending: C.llama_token(g.Pending), pos: C.llama_pos(g.Pos), end: C.llama_pos(g.End),
		most: C.int32_t(len(tokens)), patience: C.int64_t(g.Patience),
	}
	var sampled C.llama_token
	rc := C.bridge_generate(&s.c, x.c, b.c, x.signal.c, &c, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(g.Pause))),
		(*C.llama_token)(unsafe.Pointer(&tokens[0])), (*C.int64_t)(unsafe.Pointer(&at[0])), &sampled)
	n = int(c.chosen)
	g.Pos, g.Decoded = Pos(c.pos), int(c.decoded)
	switch {
	case rc != 0:
		if n > 0 {
			g.Pending = tokens[n-1]
		}
		return n, fmt.Errorf("decode the token at position %d: %w", g.Pos, x.failed(int(rc)))
	case sampled < 0:
		g.Pending = NoToken
		return n, generateError(Token(sampled))
	}
	g.Pending = tokens[n-1]
	return n, nil
}

// failed is why a decode in C failed, with what llama.cpp logged about it.
func (x *Context) failed(rc int) error {
	defer C.bridge_log_collect(false)
	err := withLog(x.decodeError(rc))
	if errors.Is(err, ErrInterrupted) {
		return ErrInterrupted // llama.cpp's words are about a failure, and this is not one
	}
	return err
}

// generateError is why there is no next token.
func generateError(status Token) error {
	if status == -5 {
		return fmt.Errorf("accept the token that was chosen: %w: it does not allow it", ErrGrammar)
	}
	return fmt.Errorf("sample the next token: %w", sampleError(status))
}
