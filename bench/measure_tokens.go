package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/llamatap/llamatap/cgo/llama"
)

// tokenSource chooses the tokens that a measurement computes: those of a text and its greedy continuation, or random
// ones.
type tokenSource struct {
	vocab   *llama.Vocab
	random  *rand.Rand
	text    []llama.Token  // nil without a text
	sampler *llama.Sampler // nil without a text
}

func (s *tokenSource) open(vocab *llama.Vocab, spec *Spec) (err error) {
	s.vocab, s.random = vocab, rand.New(rand.NewPCG(spec.Seed, 0))
	if spec.Text == "" {
		return nil
	}
	if s.text, err = vocab.Tokenize(spec.Text, true, true); err != nil {
		return fmt.Errorf("tokenize the prompt: %w", err)
	}
	if len(s.text) == 0 {
		return errors.New("the prompt has no tokens: give some text")
	}
	s.sampler = llama.NewSampler(vocab)
	s.sampler.AddGreedy()
	return nil
}

// close may be called on a source that was not opened.
func (s *tokenSource) close() {
	if s.sampler != nil {
		s.sampler.Close()
	}
}

// reset forgets what was generated.
func (s *tokenSource) reset() {
	if s.sampler != nil {
		s.sampler.Reset()
	}
}

// first is the token that a prompt of random tokens begins with.
func (s *tokenSource) first() llama.Token {
	if s.vocab.AddsBegin() {
		return s.vocab.Begin()
	}
	return s.any()
}

func (s *tokenSource) any() llama.Token { return llama.Token(s.random.IntN(s.vocab.Tokens())) }

// next returns the token that follows what x computed last: with a text the likeliest, else any.
func (s *tokenSource) next(x *llama.Context) (llama.Token, error) {
	if s.sampler == nil {
		return s.any(), nil
	}
	token, err := s.sampler.Sample(x, -1)
	if err == nil {
		err = s.sampler.Accept(token)
	}
	return token, err
}
