package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
)

// ErrPrompts: some lines of a prompt file have no completion; the results say why.
var ErrPrompts = errors.New("prompts failed")

// maxAhead is how many prompts may be begun or done behind one that is not done yet, so that results in order stay
// bounded.
const maxAhead = 4096

// RunPrompts loads a model and completes every prompt of Config.PromptsFile, Config.Parallel of them at a time: one
// that is done makes room for the next. With Config.Packs, they are as many as fill a micro-batch. Results are Answers
// as JSON lines, in the order of the prompts, in Config.ResultsFile or on Options.Stdout.
//
// A line that fails is reported on Options.Stderr, gets an Answer with an error, and lets RunPrompts return ErrPrompts
// at the end. When ctx ends it stops within one token: prompts that were begun get an Answer with
// FinishInterrupted, and the error wraps ErrInterrupted and the cause of ctx.
//
// With one sequence, each prompt is decoded in the batches in which Run decodes it alone. With several, they share
// batches, and a backend may round differently in batches of another size.
func RunPrompts(ctx context.Context, o Options) (result PromptsResult, err error) {
	runtime.LockOSThread() // one thread, so that OpenMP keeps one team
	defer runtime.UnlockOSThread()
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if err := CheckModel(o.Config.Model); err != nil {
		return result, err
	}
	p := &prompts{engine: engine{Options: o, ctx: ctx}, ids: make(map[string]int)}
	if p.in, err = openPrompts(o.Config.PromptsFile, o.Stdin); err != nil {
		return result, err
	}
	defer p.in.close()
	if p.answers, err = newAnswers(&o, p.in.file); err != nil {
		return result, err
	}
	defer p.close()
	err = cmp.Or(p.complete(), p.answers.close())
	return p.total, err
}

// prompts is the state of one RunPrompts.
type prompts struct {
	engine
	in      *promptInput
	ids     map[string]int
	slots   slots
	next    int // order of the next line
	done    int64
	answers *answers
	pauses  pauses
	total   PromptsResult
}

// complete loads the model and works until there is nothing left to do.
func (p *prompts) complete() error {
	if err := p.load(); err != nil {
		return err
	}
	if p.Config.Warmup && !p.KeepCold {
		if err := p.warmUp(); err != nil {
			return p.interrupted(err)
		}
	}
	p.total.Model, p.total.Load, p.total.WarmUp = p.result.Model, p.result.Load, p.result.WarmUp
	p.total.ContextSize = p.llama.SequenceSize()
	for i := range p.llama.Sequences() {
		p.slots = append(p.slots, &slot{seq: llama.Seq(i)})
	}
	defer p.slots.close()
	lines, stop := make(chan promptLine, 1), make(chan struct{})
	defer close(stop)
	p.in.lines = lines
	go sendLines(p.in.from, lines, stop) // a read that waits for input is left to the end of the process
	if err := p.passDone(); err != nil {
		return p.interrupted(err)
	}
	begin := time.Now()
	err := p.work()
	p.total.Elapsed = time.Since(begin)
	if err != nil {
		return p.interrupted(err)
	}
	if err := p.answers.end(); err != nil {
		return err
	}
	switch {
	case p.next == 0:
		return fmt.Errorf(`%w --prompts %s holds no prompts: write one JSON object per line, such as `+
			`{"id":1,"prompt":"Hello"}`, ErrPrompt, p.Config.PromptsFile)
	case p.total.Failed > 0:
		return fmt.Errorf("%d of %d %w", p.total.Failed, p.next, ErrPrompts)
	}
	return nil
}

// work admits prompts and decodes batches of all that are under way.
func (p *prompts) work() error {
	bar := p.progress("prompts")
	defer bar.Done()
	for {
		if err := p.admit(); err != nil {
			return err
		}
		if !p.slots.busy() {
			p.llama.Synchronize()
			return nil
		}
		next := p.step
		if s := p.slots.onlyActive(); s != nil {
			next = func() error { return p.burst(s) }
		}
		if err := next(); err != nil {
			return err
		}
		if p.in.size > 0 {
			bar.Set(float64(p.done) / float64(p.in.size))
		}
	}
}

// interrupted ends what is under way, where err is the end of ctx; every prompt that was begun has an answer then.
func (p *prompts) interrupted(err error) error {
	if !errors.Is(err, llama.ErrInterrupted) && !errors.Is(err, ErrInterrupted) {
		return err
	}
	p.total.Interrupted = true
	for _, s := range p.slots {
		if s.busy {
			s.decoded = min(s.decoded, int(held(p.llama, s.seq)))
			if err := p.finish(s, FinishInterrupted); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(p.ctx))
}

// admit gives free slots the next lines. Of a file it waits for them; of a stream only while nothing is under way.
func (p *prompts) admit() error {
	for _, s := range p.slots {
		for !s.busy && !p.in.ended && p.next < p.answers.head+maxAhead && !(p.packs &&
			p.slots.fill(p.llama.MicroBatch())) {
			line, ok, err := p.in.receive(p.ctx, p.slots.busy())
			if err != nil || !ok {
				return err
			}
			if line.err != nil && !errors.Is(line.err, errLongLine) {
				return fmt.Errorf("%w --prompts %s, line %d: read: %w", ErrPrompt, p.Config.PromptsFile, line.number,
					cli.Bare(line.err))
			}
			if err := p.begin(s, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin starts the prompt of a line in a slot, or answers with what is wrong with it.
func (p *prompts) begin(s *slot, line promptLine) error {
	order := p.next
	p.next++
	var q config.Request
	err := line.err
	if err == nil {
		q, err = p.Config.ParseRequest(line.text)
	}
	if err == nil && q.ID != nil {
		if first, taken := p.ids[string(q.ID)]; taken {
			err = fmt.Errorf("id %s is that of line %d: give each line its own, or none", q.ID, first)
		} else {
			p.ids[string(q.ID)] = line.number
		}
	}
	*s = slot{seq: s.seq, begun: s.begun, order: order, line: line, request: q}
	if err == nil {
		err = p.prepare(s)
	}
	if err != nil {
		return p.fail(s, err)
	}
	s.busy, s.begin = true, time.Now()
	if last := s.prompt[len(s.prompt)-1]; p.model.Vocab().EndsGeneration(last) {
		return p.finish(s, FinishStop) // so does Run, and decodes nothing
	}
	return nil
}
