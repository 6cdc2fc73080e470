package runner

import (
	"errors"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
)

// complete decodes the prompt and generates what follows it.
func (r *run) complete(prompt string) error {
	tokens, err := r.tokenize(prompt)
	if err != nil {
		return err
	}
	r.states.prompt = len(tokens)
	if r.State != nil && r.State.From > 0 {
		return r.completeFrom(tokens)
	}
	if r.Config.Warmup {
		if err := r.warmUp(); err != nil {
			return err
		}
	}
	if tokens, err = r.openCache(prompt, tokens); err != nil {
		return err
	}
	r.keep = keptTokens(r.Config.Keep, len(tokens), r.model.Vocab().AddsBegin())
	begin := time.Now()
	err = r.prefill(tokens)
	ready := time.Now()
	r.result.Prompt = ready.Sub(begin)
	if err != nil || r.result.Finish != "" {
		return err
	}
	last, err := r.generate()
	r.result.Generation = time.Since(ready)
	if err != nil {
		return err
	}
	return r.cache.saveAll(r, last)
}

// completeFrom generates what follows a state that was kept.
func (r *run) completeFrom(tokens []llama.Token) error {
	r.keep = keptTokens(r.Config.Keep, len(tokens), r.model.Vocab().AddsBegin())
	begin := time.Now()
	if err := r.restore(tokens); err != nil {
		return err
	}
	_, err := r.generate()
	r.result.Generation = time.Since(begin)
	return err
}

// generate chooses, writes and decodes one token after the other until there is a reason to end. last is the token that was chosen
// last and not decoded any more, or NoToken.
func (r *run) generate() (last llama.Token, err error) {
	for r.Config.Predict != 0 {
		if r.ctx.Err() != nil {
			r.result.Finish = FinishInterrupted
			return llama.NoToken, nil
		}
		token, err := r.choose()
		if err != nil {
			return llama.NoToken, err
		}
		r.result.Tokens++
		r.text.pending = r.model.Vocab().AppendPiece(r.text.pending, token, r.Config.Special)
		if err := r.text.write(); err != nil {
			return llama.NoToken, err
		}
		if r.result.Finish = r.finish(token); r.result.Finish != "" {
			return token, nil
		}
		r.states.turn(r, token)
		if err := r.decodeChosen(token); err != nil {
			return llama.NoToken, err
		}
	}
	r.result.Finish = FinishLength
	return llama.NoToken, nil
}

// decodeChosen decodes a token that was chosen.
func (r *run) decodeChosen(token llama.Token) error {
	r.one[0] = token
	if err := r.decode(r.one[:]); err != nil {
		return err
	}
	r.cache.add(token)
	r.result.DecodeSteps++
	return nil
}

// choose chooses the next token and tells the sampler that it is taken.
func (r *run) choose() (llama.Token, error) {
	token, err := r.sampler.Sample(r.llama, -1)
	if err == nil {
		err = r.sampler.Accept(token)
	}
	if errors.Is(err, llama.ErrGrammar) {
		err = fmt.Errorf("%s: %w: leave --ignore-eos, --logit-bias or some --samplers out, or change the grammar", grammarName(&r.sampling), err)
	}
	return token, err
}

// finish is why generation ends with this token, or "". Where the context is full and may be shifted, it is.
func (r *run) finish(token llama.Token) Finish {
	r.reverse.add(token)
	switch {
	case r.model.Vocab().EndsGeneration(token):
		return FinishStop
	case r.reverse.found(token):
		return FinishReverse
	case r.result.Tokens == r.Config.Predict:
		return FinishLength
	case int(r.pos)+1 >= r.llama.Size() && !r.shift():
		return FinishContext
	}
	return ""
}
