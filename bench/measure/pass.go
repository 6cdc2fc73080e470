package measure

import (
	"context"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
)

// warmUp computes the prompt, and one token where some are generated.
func (r *run) warmUp() error {
	r.forget()
	if r.Prompt > 0 {
		if err := r.prompt(r.Prompt, r.text); err != nil {
			return err
		}
	}
	if r.Gen == 0 {
		return nil
	}
	return r.token(r.first())
}

// forget empties the context.
func (r *run) forget() {
	r.llama.Memory().Clear(false)
	r.pos = 0
	if r.sampler != nil {
		r.sampler.Reset()
	}
}

// repeat fills the context to its depth and times one pass.
func (r *run) repeat() (*Repetition, error) {
	r.forget()
	if r.Depth > 0 {
		if err := r.prompt(r.Depth, nil); err != nil {
			return nil, err
		}
	}
	out := &Repetition{Time: time.Now().UTC().Format(time.RFC3339Nano), TokenNS: make([]int64, 0, r.Gen)}
	if r.PerToken {
		out.Steps = make([]Step, 0, 1+r.Gen)
	}
	out.MonoNS = monotonic()
	begin := time.Now()
	err := r.pass(out, begin)
	out.NS = time.Since(begin).Nanoseconds()
	return out, err
}

// pass computes the prompt and generates.
func (r *run) pass(out *Repetition, begin time.Time) error {
	next := llama.NoToken
	last := begin
	if r.Prompt > 0 {
		done := r.step(out, Prefill, begin, r.Prompt)
		err := r.prompt(r.Prompt, r.text)
		if err == nil && r.sampler != nil {
			next, err = r.choose()
		}
		if err != nil {
			return err
		}
		last = time.Now()
		out.FirstNS = last.Sub(begin).Nanoseconds()
		done(last)
	}
	if next == llama.NoToken {
		next = r.first()
	}
	for range r.Gen {
		done := r.step(out, Decode, begin, 1)
		if err := r.token(next); err != nil {
			return err
		}
		var err error
		if next, err = r.choose(); err != nil {
			return err
		}
		now := time.Now()
		out.TokenNS = append(out.TokenNS, now.Sub(last).Nanoseconds())
		last = now
		done(now)
	}
	return nil
}

// step begins a row of a repetition; done ends it. Without PerToken both do nothing.
func (r *run) step(out *Repetition, phase string, begin time.Time, tokens int) (done func(time.Time)) {
	if !r.PerToken {
		return func(time.Time) {}
	}
	minor, major, counted := pageFaults()
	start := time.Now()
	return func(end time.Time) {
		s := Step{Phase: phase, AtNS: start.Sub(begin).Nanoseconds(), NS: end.Sub(start).Nanoseconds(), Tokens: tokens}
		if counted {
			minorNow, majorNow, _ := pageFaults()
			minor, major = minorNow-minor, majorNow-major
			s.MinorFaults, s.MajorFaults = &minor, &major
		}
		if low, high := r.llama.Memory().Range(0); low == 0 && high == r.pos-1 {
			s.KVCells = int(r.pos)
		}
		out.Steps = append(out.Steps, s)
	}
}

// prompt decodes n tokens in batches, those given or random ones, and waits for the result.
func (r *run) prompt(n int, tokens []llama.Token) error {
	for done := 0; done < n; {
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
		size := min(n-done, r.Batch)
		r.batch.Reset()
		for i := range size {
			token := llama.NoToken
			switch {
			case tokens != nil:
				token = tokens[done+i]
			case done+i == 0:
				token = r.first()
			default:
				token = r.any()
			}
			if err := r.batch.Add(token, r.pos+llama.Pos(i), i == size-1, 0); err != nil {
				return err
			}
		}
		if err := r.llama.Decode(r.batch); err != nil {
			return err
		}
		r.pos += llama.Pos(size)
		done += size
	}
	r.llama.Synchronize()
	return nil
}

// token decodes one token and waits for the result.
func (r *run) token(token llama.Token) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	r.batch.Reset()
	if err := r.batch.Add(token, r.pos, true, 0); err != nil {
		return err
	}
	if err := r.llama.Decode(r.batch); err != nil {
		return err
	}
	r.pos++
	r.llama.Synchronize()
	return nil
}

// first is the token that a text of random tokens begins with.
func (r *run) first() llama.Token {
	if vocab := r.model.Vocab(); vocab.AddsBegin() {
		return vocab.Begin()
	}
	return r.any()
}

func (r *run) any() llama.Token { return llama.Token(r.random.IntN(r.model.Vocab().Tokens())) }

// choose is the token that follows: with a text the likeliest, else any.
func (r *run) choose() (llama.Token, error) {
	if r.sampler == nil {
		return r.any(), nil
	}
	token, err := r.sampler.Sample(r.llama, -1)
	if err == nil {
		err = r.sampler.Accept(token)
	}
	return token, err
}
