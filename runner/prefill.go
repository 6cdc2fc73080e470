package runner

import (
	"fmt"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
)

// tokenize turns the prompt into tokens as llama-completion does: the model's begin token first, control tokens
// recognised.
func (r *run) tokenize(prompt string) ([]llama.Token, error) {
	vocab := r.model.Vocab()
	tokens, err := vocab.Tokenize(prompt, true, true)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrompt, err)
	}
	switch {
	case len(tokens) > 0:
	case vocab.AddsBegin():
		tokens = append(tokens, vocab.Begin())
	case r.Config.PromptCache == "": // which may hold some
		return nil, fmt.Errorf("%w is empty, and this model has no token to begin a text with: give some text", ErrPrompt)
	}
	return tokens, r.checkLength(tokens)
}

// checkLength refuses a prompt that leaves too little room in the context.
func (r *run) checkLength(tokens []llama.Token) error {
	if most := r.llama.Size() - contextMargin; len(tokens) > most {
		return fmt.Errorf("%w: it has %d tokens, and a context of %d has room for %d: shorten it, or raise -c", ErrTooLong, len(tokens), r.llama.Size(), most)
	}
	return nil
}

// warmUp decodes the tokens that begin and end a text and forgets them, as llama.cpp does, so that the run finds
// weights and threads ready.
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

// prefill decodes the prompt in batches, but for what the prompt cache holds, and waits for the logits of its last
// token. A batch that ends with a token that ends a text, or the prompt where it ends with a reverse prompt, ends
// the run undecoded, as it does in llama-completion.
func (r *run) prefill(tokens []llama.Token) error {
	bar := r.progress("decoding the prompt")
	defer bar.Done()
	size := r.llama.Batch()
	for done := 0; done < len(tokens); done += size {
		part := tokens[done:min(done+size, len(tokens))]
		last := part[len(part)-1]
		for _, token := range part {
			if err := r.sampler.AcceptPrompt(token); err != nil { // the penalties look at the prompt too
				return err
			}
			r.reverse.add(token)
		}
		final := done+len(part) == len(tokens)
		switch {
		case r.model.Vocab().EndsGeneration(last):
			r.result.Finish = FinishStop
		case final && r.reverse.found(last):
			r.result.Finish = FinishReverse
		}
		if r.result.Finish != "" {
			return nil
		}
		if err := r.decodePrompt(part, final); err != nil {
			return err
		}
		bar.Set(float64(done+len(part)) / float64(len(tokens)))
	}
	r.llama.Synchronize()
	return nil
}

// decodePrompt decodes a part of the prompt that the cache does not hold. Before the last token of the prompt, the
// cache is saved.
func (r *run) decodePrompt(part []llama.Token, final bool) error {
	known := r.cache.use(part)
	r.pos += llama.Pos(known)
	r.result.CachedTokens += known
	part = part[known:]
	if len(part) == 0 {
		return nil
	}
	r.cache.add(part...)
	r.result.PromptTokens += len(part)
	if final && len(part) > 1 && r.cache.wanted() {
		if err := r.decode(part[:len(part)-1]); err != nil {
			return err
		}
		if err := r.cache.save(r); err != nil {
			return err
		}
		part = part[len(part)-1:]
	}
	return r.decode(part)
}

// decode decodes tokens behind those before, with logits for the last one.
func (r *run) decode(tokens []llama.Token) error { return r.decodeWith(tokens, true) }

// decodeWith decodes tokens behind those before; output asks for the logits of the last one.
func (r *run) decodeWith(tokens []llama.Token, output bool) error {
	r.batch.Reset()
	for i, token := range tokens {
		if err := r.batch.Add(token, r.pos+llama.Pos(i), output && i == len(tokens)-1, 0); err != nil {
			return err
		}
	}
	r.pos += llama.Pos(len(tokens))
	return r.llama.Decode(r.batch)
}
