package bench

import (
	"context"
	"errors"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/store/stream"
)

// warmUp computes the prompt, and one token where some are generated.
func (r *measurement) warmUp() error {
	r.forget()
	if r.Prompt > 0 {
		if err := r.prompt(r.Prompt, r.source.text); err != nil {
			return err
		}
	}
	if r.Gen == 0 {
		return nil
	}
	return r.token(r.source.first())
}

// forget empties the context.
func (r *measurement) forget() {
	r.llama.Memory().Clear(false)
	r.pos = 0
	r.source.reset()
}

// repeat fills the context to its depth and times one pass.
func (r *measurement) repeat() (*Repetition, error) {
	r.forget()
	if r.Depth > 0 {
		if err := r.prompt(r.Depth, nil); err != nil {
			return nil, err
		}
	}
	for i := range r.tokens {
		r.tokens[i] = r.source.any()
	}
	out := &Repetition{Time: time.Now().UTC().Format(time.RFC3339Nano), TokenNS: make([]int64, 0, r.Gen)}
	if r.PerToken {
		out.Steps = make([]Step, 0, 1+r.Gen)
	}
	begin, mono := bothClocks()
	out.MonoNS = mono
	err := r.pass(out, begin)
	out.NS = time.Since(begin).Nanoseconds()
	return out, err
}

// bothClocks reads Go's clock and the machine's at one moment: between the two the thread may lose its processor,
// and then they are read again.
func bothClocks() (now time.Time, mono int64) {
	const close = 2000 // ns
	for range 1000 {
		before := stream.MonoNS()
		now = time.Now()
		after := stream.MonoNS()
		if mono = before + (after-before)/2; after-before <= close {
			break
		}
	}
	return now, mono
}

// pass computes the prompt and generates.
func (r *measurement) pass(out *Repetition, begin time.Time) error {
	next := llama.NoToken
	last := begin
	if r.Prompt > 0 {
		done := r.step(out, PhasePrefill, begin, r.Prompt)
		err := r.prompt(r.Prompt, r.source.text)
		if err == nil && r.source.sampler != nil {
			next, err = r.source.next(r.llama)
		}
		if err != nil {
			return err
		}
		last = time.Now()
		out.FirstNS = last.Sub(begin).Nanoseconds()
		done(last)
	}
	if next == llama.NoToken {
		next = r.source.first()
	}
	if r.source.sampler == nil && !r.PerToken && r.Gen > 0 {
		return r.generate(out, next)
	}
	for range r.Gen {
		done := r.step(out, PhaseDecode, begin, 1)
		if err := r.token(next); err != nil {
			return err
		}
		var err error
		if next, err = r.source.next(r.llama); err != nil {
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
func (r *measurement) step(out *Repetition, phase string, begin time.Time, tokens int) (done func(time.Time)) {
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

// generate decodes the tokens that are generated without a return to Go between them.
func (r *measurement) generate(out *Repetition, next llama.Token) error {
	if err := r.ready(next); err != nil {
		return err
	}
	for i := range r.sequences() {
		r.tokens[i] = next
	}
	done, err := r.llama.DecodeEach(r.batch, r.tokens, r.at)
	r.pos += llama.Pos(done)
	for i := range done {
		out.TokenNS = append(out.TokenNS, r.at[i+1]-r.at[i])
	}
	return r.interrupted(err)
}

// interrupted is the cause of an error that the end of the run's context made, and other errors as they are.
func (r *measurement) interrupted(err error) error {
	if cause := context.Cause(r.ctx); cause != nil && errors.Is(err, llama.ErrInterrupted) {
		return cause
	}
	return err
}

// prompt decodes n tokens of every sequence in batches, those given or random ones, and waits for the result.
func (r *measurement) prompt(n int, tokens []llama.Token) error {
	for seq := range r.sequences() {
		if err := r.part(llama.Seq(seq), n, tokens); err != nil {
			return err
		}
	}
	r.pos += llama.Pos(n)
	r.llama.Synchronize()
	return nil
}

// part decodes the prompt of one sequence.
func (r *measurement) part(seq llama.Seq, n int, tokens []llama.Token) error {
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
				token = r.source.first()
			default:
				token = r.source.any()
			}
			if err := r.batch.Add(token, r.pos+llama.Pos(done+i), i == size-1, seq); err != nil {
				return err
			}
		}
		if err := r.llama.Decode(r.batch); err != nil {
			return r.interrupted(err)
		}
		done += size
	}
	return nil
}

// ready makes a batch of a token for each sequence.
func (r *measurement) ready(token llama.Token) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	r.batch.Reset()
	for seq := range r.sequences() {
		if err := r.batch.Add(token, r.pos, true, llama.Seq(seq)); err != nil {
			return err
		}
	}
	return nil
}

// token decodes a token of each sequence and waits for the result.
func (r *measurement) token(token llama.Token) error {
	if err := r.ready(token); err != nil {
		return err
	}
	if err := r.llama.Decode(r.batch); err != nil {
		return r.interrupted(err)
	}
	r.pos++
	r.llama.Synchronize()
	return nil
}
