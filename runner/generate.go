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
	if r.Config.Warmup {
		if err := r.warmUp(); err != nil {
			return err
		}
	}
	r.result.Seed = r.sampler.Seed() // a random one is drawn anew after the warm-up
	if r.model.Vocab().EndsGeneration(tokens[len(tokens)-1]) {
		r.result.Finish = FinishStop // so does llama-completion, and decodes nothing
		return nil
	}
	begin := time.Now()
	err = r.prefill(tokens)
	ready := time.Now()
	r.result.Prompt = ready.Sub(begin)
	if err != nil {
		return err
	}
	err = r.generate()
	r.result.Generation = time.Since(ready)
	return err
}

// tokenize turns the prompt into tokens as llama-completion does: the model's begin token first, control tokens recognised.
func (r *run) tokenize(prompt string) ([]llama.Token, error) {
	vocab := r.model.Vocab()
	tokens, err := vocab.Tokenize(prompt, true, true)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrompt, err)
	}
	if len(tokens) == 0 {
		if !vocab.AddsBegin() {
			return nil, fmt.Errorf("%w is empty, and this model has no token to begin a text with: give some text", ErrPrompt)
		}
		tokens = append(tokens, vocab.Begin())
	}
	if most := r.llama.Size() - contextMargin; len(tokens) > most {
		return nil, fmt.Errorf("%w: it has %d tokens, and a context of %d has room for %d: shorten it, or raise -c", ErrTooLong, len(tokens), r.llama.Size(), most)
	}
	return tokens, nil
}

// warmUp decodes the tokens that begin and end a text and forgets them, as llama.cpp does, so that the run finds weights and threads
// ready.
func (r *run) warmUp() error {
	begin := time.Now()
	vocab := r.model.Vocab()
	var tokens []llama.Token
	for _, token := range []llama.Token{vocab.Begin(), vocab.End()} {
		if token != llama.NoToken {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 {
		tokens = []llama.Token{0}
	}
	err := r.decode(tokens[:min(len(tokens), r.llama.Batch())])
	r.llama.Memory().Clear(true)
	r.llama.Synchronize()
	r.llama.PerfReset()
	r.sampler.Reset()
	r.pos = 0
	r.result.WarmUp = time.Since(begin)
	return err
}

// prefill decodes the prompt in batches and waits for the logits of its last token.
func (r *run) prefill(tokens []llama.Token) error {
	bar := r.progress("decoding the prompt")
	defer bar.done()
	size := r.llama.Batch()
	for done := 0; done < len(tokens); done += size {
		part := tokens[done:min(done+size, len(tokens))]
		for _, token := range part {
			if err := r.sampler.AcceptPrompt(token); err != nil { // the penalties look at the prompt too
				return err
			}
		}
		if err := r.decode(part); err != nil {
			return err
		}
		r.result.PromptTokens += len(part)
		bar.set(float64(r.result.PromptTokens) / float64(len(tokens)))
	}
	r.llama.Synchronize()
	return nil
}

// decode decodes tokens behind those before, with logits for the last one.
func (r *run) decode(tokens []llama.Token) error {
	r.batch.Reset()
	for i, token := range tokens {
		if err := r.batch.Add(token, r.pos+llama.Pos(i), i == len(tokens)-1, 0); err != nil {
			return err
		}
	}
	r.pos += llama.Pos(len(tokens))
	return r.llama.Decode(r.batch)
}

// generate chooses, writes and decodes one token after the other until there is a reason to end.
func (r *run) generate() error {
	var next [1]llama.Token
	for r.Config.Predict != 0 {
		if r.ctx.Err() != nil {
			r.result.Finish = FinishInterrupted
			return nil
		}
		token, err := r.choose()
		if err != nil {
			return err
		}
		r.result.Tokens++
		r.text.pending = r.model.Vocab().AppendPiece(r.text.pending, token, false)
		if err := r.text.write(); err != nil {
			return err
		}
		if r.result.Finish = r.finish(token); r.result.Finish != "" {
			return nil
		}
		next[0] = token
		if err := r.decode(next[:]); err != nil {
			return err
		}
		r.result.DecodeSteps++
	}
	r.result.Finish = FinishLength
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

// finish is why generation ends with this token, or "".
func (r *run) finish(token llama.Token) Finish {
	switch {
	case r.model.Vocab().EndsGeneration(token):
		return FinishStop
	case r.result.Tokens == r.Config.Predict:
		return FinishLength
	case int(r.pos)+1 >= r.llama.Size():
		return FinishContext
	}
	return ""
}
