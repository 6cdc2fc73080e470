package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/llamatap/llamatap/cgo/llama"
)

// contextMargin is how many tokens of the context a prompt must leave free; llama-completion's number.
const contextMargin = 4

// Run loads a model, decodes the prompt and generates text. It blocks until the text ends.
//
// When ctx ends it stops within one token: the result says so and holds what was done until then, and the error
// wraps ErrInterrupted and the cause of ctx. Without llama.cpp in this build the error wraps errors.ErrUnsupported.
func Run(ctx context.Context, o Options) (result Result, err error) {
	runtime.LockOSThread() // one thread, so that OpenMP keeps one team
	defer runtime.UnlockOSThread()
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if err := CheckModel(o.Config.Model); err != nil {
		return result, err
	}
	if err := checkCache(o.Config.PromptCache); err != nil {
		return result, err
	}
	prompt, err := ReadPrompt(ctx, o.Config, o.Stdin)
	if err != nil {
		return result, err
	}
	r := &run{engine: engine{Options: o, ctx: ctx}, text: text{out: o.Stdout}}
	defer r.close()
	if err := r.load(); err != nil {
		return r.result, err
	}
	r.memory = sequence{llama: r.llama, batch: r.batch}
	if r.states, err = openStates(&r.engine); err != nil {
		return r.result, err
	}
	defer r.states.close()
	err = r.complete(prompt)
	if flushErr := r.text.flush(); err == nil {
		err = flushErr
	}
	if errors.Is(err, llama.ErrInterrupted) || err == nil && r.result.Finish == FinishInterrupted {
		r.result.Finish = FinishInterrupted
		err = fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	}
	return r.result, err
}

// run is the state of one Run: one prompt in one sequence.
type run struct {
	engine
	memory sequence
	text   text
	cache  promptCache
	states states
	keep   int // tokens that stay when the context is shifted
}
