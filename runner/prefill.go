package runner

import (
	"fmt"

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
		return nil, fmt.Errorf("%w is empty, and this model has no token to begin a text with: give some text",
			ErrPrompt)
	}
	return tokens, checkLength(tokens, r.llama.Size())
}

// checkLength refuses a prompt that leaves too little room in a context.
func checkLength(tokens []llama.Token, size int) error {
	if most := size - contextMargin; len(tokens) > most {
		return fmt.Errorf("%w: it has %d tokens, and a context of %d has room for %d: shorten it, or raise -c",
			ErrTooLong, len(tokens), size, most)
	}
	return nil
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
	known := r.cache.cachedTokens(part)
	r.memory.pos += llama.Pos(known)
	r.result.CachedTokens += known
	part = part[known:]
	if len(part) == 0 {
		return nil
	}
	r.cache.add(part...)
	begin := r.memory.pos
	defer func() { r.result.PromptTokens += int(r.memory.pos - begin) }()
	if final && len(part) > 1 && r.cache.wanted() {
		if err := r.memory.decode(part[:len(part)-1], true); err != nil {
			return err
		}
		if err := r.cache.save(r.llama); err != nil {
			return err
		}
		part = part[len(part)-1:]
	}
	return r.memory.decode(part, true)
}
