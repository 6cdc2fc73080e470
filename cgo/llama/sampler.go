//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
// #cgo noescape bridge_sample
// #cgo nocallback bridge_sample
// #cgo noescape bridge_accept
// #cgo nocallback bridge_accept
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// Sampler is a chain of samplers, applied in the order in which they were added, and perhaps a grammar. It belongs to
// one goroutine at a time.
type Sampler struct {
	c       C.struct_bridge_sampler
	vocab   *Vocab
	choices []choices
}

// NewSampler makes an empty chain for a vocabulary, whose model must outlive it.
func NewSampler(v *Vocab) *Sampler {
	s := &Sampler{vocab: v}
	s.c.chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
	s.c.candidates = (*C.llama_token_data)(C.calloc(C.size_t(v.n), C.size_t(unsafe.Sizeof(C.llama_token_data{}))))
	s.c.n = C.int32_t(v.n)
	return s
}

// Close frees the chain and the grammar.
func (s *Sampler) Close() {
	if s.c.chain != nil {
		C.llama_sampler_free(s.c.chain)
		C.llama_sampler_free(s.c.grammar)
		C.free(unsafe.Pointer(s.c.candidates))
		for _, n := range s.choices {
			C.free(unsafe.Pointer(n.count))
		}
		*s = Sampler{}
	}
}

// SetGrammar lets only tokens be chosen whose text a grammar in GBNF allows, from its rule root on. The error is
// ErrGrammar with llama.cpp's reason. While the grammar is read, what the process writes to stderr is held back:
// llama.cpp reports the reason there.
func (s *Sampler) SetGrammar(gbnf, root string) error {
	if s.c.chain == nil {
		return fmt.Errorf("set a grammar: the sampler is %w", ErrClosed)
	}
	if err := checkGrammar(gbnf); err != nil {
		return err
	}
	why, stop := collectErrors()
	defer stop()
	text := C.CString(gbnf)
	defer C.free(unsafe.Pointer(text))
	start := C.CString(root)
	defer C.free(unsafe.Pointer(start))
	var spoken [512]C.char
	grammar := C.bridge_grammar_init(s.vocab.c, text, start, &spoken[0], C.size_t(len(spoken)))
	if grammar == nil {
		return grammarError(why(ErrGrammar), C.GoString(&spoken[0]))
	}
	C.llama_sampler_free(s.c.grammar)
	s.c.grammar = grammar
	return nil
}

// grammarError is err with the reason that llama.cpp's reader of grammars spoke, in the first line of more.
func grammarError(err error, spoken string) error {
	line, _, _ := strings.Cut(spoken, "\n")
	if _, reason, ok := strings.Cut(line, "error parsing grammar: "); ok {
		if len(reason) > 160 { // it ends with the rest of the grammar
			reason = strings.ToValidUTF8(reason[:160], "") + "…"
		}
		return fmt.Errorf("%w: %s", ErrGrammar, reason)
	}
	return err
}

// Sample chooses a token by the logits of output i of the context's last batch (-1: the last output). It does not
// Accept it. With a grammar, only where the chain's choice is forbidden, the grammar is applied to all tokens and the
// chain once more, as llama.cpp's programs do; the error is ErrGrammar where it allows none that the chain leaves.
func (s *Sampler) Sample(x *Context, i int) (Token, error) {
	if s.c.chain == nil || x.c == nil {
		return NoToken, fmt.Errorf("sample: context or sampler is %w", ErrClosed)
	}
	token := Token(C.bridge_sample(&s.c, x.c, C.int32_t(i)))
	if token >= 0 {
		return token, nil
	}
	return NoToken, fmt.Errorf("sample output %d: %w", i, sampleError(token))
}

func sampleError(status Token) error {
	switch status {
	case NoToken:
		return errors.New("the chain chooses the token that ends a text, and this model has none: leave infill out")
	case -2:
		return ErrNoLogits
	case -4:
		return fmt.Errorf("%w: it allows none of the tokens that are left", ErrGrammar)
	}
	return errors.New("the chain chooses no token: end it with AddDist, AddGreedy, AddMirostat or AddAdaptive")
}

// Accept passes a generated token, which became part of the text, to the chain and the grammar. The error is ErrGrammar
// when the grammar does not allow it; nothing was changed then.
func (s *Sampler) Accept(token Token) error { return s.accept(token, true) }

// AcceptPrompt passes a token of the text to the chain, but not to the grammar.
func (s *Sampler) AcceptPrompt(token Token) error { return s.accept(token, false) }

func (s *Sampler) accept(token Token, generated bool) error {
	if s.c.chain == nil {
		return fmt.Errorf("accept a token: the sampler is %w", ErrClosed)
	}
	if !bool(C.bridge_accept(&s.c, C.llama_token(token), C.bool(generated))) {
		return fmt.Errorf("accept token %d: %w: it does not allow this token", token, ErrGrammar)
	}
	return nil
}

// Reset forgets accepted tokens and takes every random generator back to its seed. The grammar begins again.
func (s *Sampler) Reset() {
	if s.c.chain != nil {
		C.llama_sampler_reset(s.c.chain)
		C.llama_sampler_reset(s.c.grammar)
		for _, n := range s.choices {
			*n.count = C.struct_bridge_choices{}
		}
	}
}

// Seed is the seed of the last sampler of the chain that reports one, also where RandomSeed was asked for;
// AddAdaptive's reports none, and then it is RandomSeed.
func (s *Sampler) Seed() uint32 { return uint32(C.llama_sampler_get_seed(s.c.chain)) }
