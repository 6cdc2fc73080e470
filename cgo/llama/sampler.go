//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Sampler is a chain of samplers, applied in the order in which they were added. It belongs to one goroutine at a time.
type Sampler struct {
	c          *C.struct_llama_sampler
	candidates *C.llama_token_data // one per token of the vocabulary
	n          int
}

// NewSampler makes an empty chain for a vocabulary. The vocabulary is not kept.
func NewSampler(v *Vocab) *Sampler {
	return &Sampler{
		c:          C.llama_sampler_chain_init(C.llama_sampler_chain_default_params()),
		candidates: (*C.llama_token_data)(C.calloc(C.size_t(v.n), C.size_t(unsafe.Sizeof(C.llama_token_data{})))),
		n:          v.n,
	}
}

// Close frees the chain.
func (s *Sampler) Close() {
	if s.c != nil {
		C.llama_sampler_free(s.c)
		C.free(unsafe.Pointer(s.candidates))
		*s = Sampler{}
	}
}

func (s *Sampler) add(sampler *C.struct_llama_sampler) { C.llama_sampler_chain_add(s.c, sampler) }

// AddLogitBias adds values to the logits of some tokens.
func (s *Sampler) AddLogitBias(biases []LogitBias) {
	if len(biases) > 0 {
		s.add(C.llama_sampler_init_logit_bias(C.int32_t(s.n), C.int32_t(len(biases)), (*C.llama_logit_bias)(unsafe.Pointer(&biases[0]))))
	}
}

// AddPenalties makes tokens less likely that are among the last lastN: repeat divides, 1 is none; frequency and presence subtract.
func (s *Sampler) AddPenalties(lastN int, repeat, frequency, presence float32) {
	s.add(C.llama_sampler_init_penalties(C.int32_t(s.n), C.int32_t(lastN), C.float(repeat), C.float(frequency), C.float(presence)))
}

// AddTopK keeps the k likeliest tokens; 0 or less keeps all.
func (s *Sampler) AddTopK(k int) { s.add(C.llama_sampler_init_top_k(C.int32_t(k))) }

// AddTopP keeps the likeliest tokens that together have probability p, at least minKeep; 1 keeps all.
func (s *Sampler) AddTopP(p float32, minKeep int) {
	s.add(C.llama_sampler_init_top_p(C.float(p), C.size_t(minKeep)))
}

// AddMinP keeps tokens with at least p times the probability of the likeliest, at least minKeep; 0 keeps all.
func (s *Sampler) AddMinP(p float32, minKeep int) {
	s.add(C.llama_sampler_init_min_p(C.float(p), C.size_t(minKeep)))
}

// AddTemperature divides the logits by t; with t of 0 or less only the likeliest token stays. With span above 0 the temperature
// follows the entropy, between t-span and t+span.
func (s *Sampler) AddTemperature(t, span, exponent float32) {
	s.add(C.llama_sampler_init_temp_ext(C.float(t), C.float(span), C.float(exponent)))
}

// AddDist chooses by chance. A seed of RandomSeed takes one from the system.
func (s *Sampler) AddDist(seed uint32) { s.add(C.llama_sampler_init_dist(C.uint32_t(seed))) }

// AddGreedy chooses the likeliest token.
func (s *Sampler) AddGreedy() { s.add(C.llama_sampler_init_greedy()) }

// Sample chooses a token by the logits of output i of the context's last batch (-1: the last output). It does not Accept it.
func (s *Sampler) Sample(x *Context, i int) (Token, error) {
	if s.c == nil || x.c == nil {
		return NoToken, fmt.Errorf("sample: context or sampler is %w", ErrClosed)
	}
	switch token := Token(C.bridge_sample(s.c, x.c, C.int32_t(i), s.candidates, C.int32_t(s.n))); token {
	case -2:
		return NoToken, fmt.Errorf("sample output %d: %w", i, ErrNoLogits)
	case -3:
		return NoToken, fmt.Errorf("sample output %d: the chain chooses no token: end it with AddDist or AddGreedy", i)
	default:
		return token, nil
	}
}

// Accept tells the chain that a token became part of the text, of the prompt or generated.
func (s *Sampler) Accept(token Token) { C.llama_sampler_accept(s.c, C.llama_token(token)) }

// Reset forgets accepted tokens and takes every random generator back to its seed.
func (s *Sampler) Reset() { C.llama_sampler_reset(s.c) }

// Seed is the seed that the chain really uses, also where RandomSeed was asked for.
func (s *Sampler) Seed() uint32 { return uint32(C.llama_sampler_get_seed(s.c)) }
