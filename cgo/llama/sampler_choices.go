//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import "fmt"

// choices counts those of one sampler of a chain.
type choices struct {
	at    C.int32_t // place in the chain of the sampler whose choices they are
	count *C.struct_bridge_choices
}

// CountChoices counts the choices of the sampler that is added next.
func (s *Sampler) CountChoices() {
	n := choices{at: C.llama_sampler_chain_n(s.c.chain) + 1,
		count: (*C.struct_bridge_choices)(C.calloc(1, C.sizeof_struct_bridge_choices))}
	s.add(C.bridge_choices_init(n.count))
	s.choices = append(s.choices, n)
}

// Choices are those of the samplers for which CountChoices was called, in the order of the chain.
func (s *Sampler) Choices() []Choices {
	var counts []Choices
	for _, n := range s.choices {
		counts = append(counts, Choices{uint64(n.count.one), uint64(n.count.more)})
	}
	return counts
}

// ReplayChoices brings the random generators of a new chain to where they are behind so many choices, as Choices
// reports them of a chain of the same samplers and seeds. The error is ErrState where they are of another one.
func (s *Sampler) ReplayChoices(counts []Choices) error {
	if len(counts) != len(s.choices) {
		return fmt.Errorf("replay choices: %w: it is of %d samplers that draw, and the chain has %d", ErrState,
			len(counts), len(s.choices))
	}
	for i, n := range s.choices {
		made := C.struct_bridge_choices{one: C.uint64_t(counts[i].One), more: C.uint64_t(counts[i].More)}
		C.bridge_choices_replay(C.llama_sampler_chain_get(s.c.chain, n.at), made)
		*n.count = made
	}
	return nil
}

// SlidingWindow is how many tokens back some layers of the model look at most; 0: all do without end.
func (m *Model) SlidingWindow() int { return int(C.llama_model_n_swa(m.c)) }
