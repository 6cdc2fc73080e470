package runner

import (
	"errors"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
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
	if tokens, err = r.cache.open(r, prompt, tokens); err != nil {
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
	return r.cache.saveAll(r.llama, last)
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

// burstTokens is how many tokens are generated at most before their text is written.
const burstTokens = 512

// burstTime is how long tokens are generated at most before their text is written: shorter than anyone sees.
const burstTime = 30 * time.Millisecond

// generate generates tokens in bursts, each in one call of C, and writes their text, until there is a reason to
// end. last is the token that was chosen last and not decoded any more, or NoToken.
func (r *run) generate() (last llama.Token, err error) {
	if r.Config.Predict == 0 {
		r.result.Finish = FinishLength
		return llama.NoToken, nil
	}
	var times [burstTokens]int64
	var room [burstTokens]llama.Token
	g := llama.Generation{Pending: llama.NoToken, End: llama.Pos(r.llama.Size()), Pause: r.reverse.ends()}
	for r.ctx.Err() == nil {
		pending := g.Pending
		tokens := room[:r.burst(pending)]
		g.Pos = r.memory.pos // which a shift has moved
		n, failed := r.llama.Generate(r.sampler, r.batch, &g, tokens, times[:len(tokens)])
		g.Patience = burstTime // the first token comes at once
		r.decoded(&g, pending, tokens[:n])
		if err := r.appendTokens(tokens[:n]); err != nil {
			return llama.NoToken, err
		}
		if failed != nil {
			return llama.NoToken, choiceError(failed, &r.sampling)
		}
		if r.result.Finish = r.finish(g.Pending); r.result.Finish != "" {
			return g.Pending, nil
		}
		r.states.update(r, tokens[:n])
	}
	r.result.Finish = FinishInterrupted
	return llama.NoToken, nil
}

// burst is how many tokens may be chosen before something is to be done: text to be written, the last one taken, a
// state kept.
func (r *run) burst(pending llama.Token) int {
	most := burstTokens
	if r.TextEvery > 0 {
		most = min(most, r.TextEvery-r.result.Tokens%r.TextEvery)
	}
	if r.Config.Predict > 0 {
		most = min(most, r.Config.Predict-r.result.Tokens)
	}
	if left := r.states.left(r); left >= 0 {
		if pending == llama.NoToken {
			left++ // the first one chosen takes no place before it is decoded
		}
		most = min(most, max(left, 1))
	}
	return most
}

// decoded notes which tokens the memory holds: the one that was pending, and those chosen then.
func (r *run) decoded(g *llama.Generation, pending llama.Token, chosen []llama.Token) {
	r.memory.pos = g.Pos
	r.result.DecodeSteps += g.Decoded
	if g.Decoded > 0 && pending != llama.NoToken {
		r.cache.add(pending)
		g.Decoded--
	}
	r.cache.add(chosen[:g.Decoded]...)
}

// appendTokens adds tokens to the text and writes it.
func (r *run) appendTokens(tokens []llama.Token) error {
	for _, token := range tokens {
		r.result.Tokens++
		r.text.pending = r.model.Vocab().AppendPiece(r.text.pending, token, r.Config.Special)
		r.reverse.add(token)
	}
	return r.text.write()
}

// choiceError adds to err what can be done where the grammar leaves no choice.
func choiceError(err error, sampling *config.Sampling) error {
	if errors.Is(err, llama.ErrGrammar) {
		return fmt.Errorf("%s: %w: leave --ignore-eos, --logit-bias or some --samplers out, or change the grammar",
			grammarName(sampling), err)
	}
	return err
}

// finish is why generation ends with this token, the last of the text, or "". Where the context is full and may be
// shifted, it is.
func (r *run) finish(token llama.Token) Finish {
	switch {
	case r.model.Vocab().EndsGeneration(token):
		return FinishStop
	case r.reverse.found(token):
		return FinishReverse
	case r.result.Tokens == r.Config.Predict:
		return FinishLength
	case int(r.memory.pos)+1 >= r.llama.Size() && !r.shift():
		return FinishContext
	}
	return ""
}

// keptTokens is how many tokens from the prompt's begin on stay when the context is shifted: as many as asked for
// and the token that begins a text, or the whole prompt.
func keptTokens(asked, prompt int, addsBegin bool) int {
	switch {
	case asked < 0 || asked > prompt:
		return prompt
	case addsBegin:
		return asked + 1
	}
	return asked
}

// shift makes room in a full context: half of what is not to be kept is forgotten, and what is behind it moves up.
// false: the context is not to be shifted, or its memory cannot be.
func (r *run) shift() bool {
	if !r.shifts || r.Config.Predict == -2 {
		return false
	}
	kept, mem := llama.Pos(r.keep), r.llama.Memory()
	discard := (r.memory.pos - kept) / 2
	mem.Remove(0, kept, kept+discard)
	mem.Shift(0, kept+discard, r.memory.pos, -discard)
	r.memory.pos -= discard
	r.cache.disable() // its tokens are the memory's no more
	r.result.Shifts++
	return true
}
