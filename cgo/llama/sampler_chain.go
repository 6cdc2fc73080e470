//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import "unsafe"

func (s *Sampler) add(sampler *C.struct_llama_sampler) { C.llama_sampler_chain_add(s.c.chain, sampler) }

// AddLogitBias adds values to the logits of some tokens.
func (s *Sampler) AddLogitBias(biases []LogitBias) {
	if len(biases) > 0 {
		s.add(C.llama_sampler_init_logit_bias(s.c.n, C.int32_t(len(biases)),
			(*C.llama_logit_bias)(unsafe.Pointer(&biases[0]))))
	}
}

// AddPenalties makes tokens less likely that are among the last lastN: repeat divides, 1 is none; frequency and
// presence subtract.
func (s *Sampler) AddPenalties(lastN int, repeat, frequency, presence float32) {
	s.add(C.llama_sampler_init_penalties(s.c.n, C.int32_t(lastN), C.float(repeat), C.float(frequency),
		C.float(presence)))
}

// AddDry makes tokens less likely that would continue a repetition of earlier text.
func (s *Sampler) AddDry(d Dry) {
	breakers := make([]*C.char, len(d.Breakers)+1) // Go memory with C pointers, which C may read
	for i, text := range d.Breakers {
		breakers[i] = C.CString(text)
		defer C.free(unsafe.Pointer(breakers[i]))
	}
	s.add(C.llama_sampler_init_dry(s.vocab.c, C.float(d.Multiplier), C.float(d.Base), C.int32_t(d.AllowedLength),
		C.int32_t(d.LastN), &breakers[0], C.size_t(len(d.Breakers))))
}

// AddTopNSigma keeps tokens whose logits are within n standard deviations of the highest; 0 or less keeps all.
func (s *Sampler) AddTopNSigma(n float32) { s.add(C.llama_sampler_init_top_n_sigma(C.float(n))) }

// AddTopK keeps the k likeliest tokens; 0 or less keeps all.
func (s *Sampler) AddTopK(k int) { s.add(C.llama_sampler_init_top_k(C.int32_t(k))) }

// AddTypical keeps the tokens nearest to the expected information that together have probability p, at least minKeep; 1
// keeps all.
func (s *Sampler) AddTypical(p float32, minKeep int) {
	s.add(C.llama_sampler_init_typical(C.float(p), C.size_t(minKeep)))
}

// AddTopP keeps the likeliest tokens that together have probability p, at least minKeep; 1 keeps all.
func (s *Sampler) AddTopP(p float32, minKeep int) {
	s.add(C.llama_sampler_init_top_p(C.float(p), C.size_t(minKeep)))
}

// AddMinP keeps tokens with at least p times the probability of the likeliest, at least minKeep; 0 keeps all.
func (s *Sampler) AddMinP(p float32, minKeep int) {
	s.add(C.llama_sampler_init_min_p(C.float(p), C.size_t(minKeep)))
}

// AddXTC removes, with a probability, all tokens above a threshold but the least likely of them, and leaves at least
// minKeep.
func (s *Sampler) AddXTC(probability, threshold float32, minKeep int, seed uint32) {
	s.add(C.llama_sampler_init_xtc(C.float(probability), C.float(threshold), C.size_t(minKeep), C.uint32_t(seed)))
}

// AddTemperature divides the logits by t; with t of 0 or less only the likeliest token stays. With span above 0 the
// temperature follows the entropy, between t-span and t+span.
func (s *Sampler) AddTemperature(t, span, exponent float32) {
	s.add(C.llama_sampler_init_temp_ext(C.float(t), C.float(span), C.float(exponent)))
}

// AddInfill prefers, for text between two others, short tokens that begin likely ones, and the end where nothing is
// likely.
func (s *Sampler) AddInfill() { s.add(C.llama_sampler_init_infill(s.vocab.c)) }

// AddDist chooses by chance. A seed of RandomSeed takes one from the system.
func (s *Sampler) AddDist(seed uint32) { s.add(C.llama_sampler_init_dist(C.uint32_t(seed))) }

// AddGreedy chooses the likeliest token.
func (s *Sampler) AddGreedy() { s.add(C.llama_sampler_init_greedy()) }

// AddAdaptive chooses by chance, tokens with a probability near target before others, which follows the probabilities
// of those chosen before by decay (0 to 0.99); a target below 0 chooses like AddDist.
func (s *Sampler) AddAdaptive(target, decay float32, seed uint32) {
	s.add(C.llama_sampler_init_adaptive_p(C.float(target), C.float(decay), C.uint32_t(seed)))
}

// AddMirostat chooses by chance such that the surprise stays near tau, with learning rate eta, by version 1 (with m of
// 100) of the algorithm.
func (s *Sampler) AddMirostat(tau, eta float32, seed uint32) {
	s.add(C.llama_sampler_init_mirostat(s.c.n, C.uint32_t(seed), C.float(tau), C.float(eta), 100))
}

// AddMirostat2 is AddMirostat by version 2 of the algorithm.
func (s *Sampler) AddMirostat2(tau, eta float32, seed uint32) {
	s.add(C.llama_sampler_init_mirostat_v2(C.uint32_t(seed), C.float(tau), C.float(eta)))
}
