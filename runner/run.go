package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
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
	r := &run{Options: o, ctx: ctx, text: text{out: o.Stdout}}
	defer r.close()
	if err := r.load(); err != nil {
		return r.result, err
	}
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

// run is the state of one Run.
type run struct {
	Options
	ctx      context.Context
	model    *llama.Model
	llama    *llama.Context
	batch    *llama.Batch
	adapters []llama.ScaledAdapter
	sampler  *llama.Sampler
	sampling config.Sampling
	unwatch  func()
	text     text
	reverse  reverse
	cache    promptCache
	states   states
	one      [1]llama.Token // that is decoded
	pos      llama.Pos      // where the next token goes
	keep     int            // tokens that stay when the context is shifted
	shifts   bool           // a full context is shifted
	result   Result
}

// load brings the model into memory and makes what decoding needs.
func (r *run) load() (err error) {
	begin := time.Now()
	llama.SetLog(logLevel(r.Config.Verbose))
	bar := r.progress("loading the model")
	r.model, err = loadModel(r.ctx, r.Config, bar.Set)
	bar.Done()
	if err != nil {
		return err
	}
	r.result.Model = describe(r.model)
	params, err := contextParams(r.Config)
	if err != nil {
		return err
	}
	if r.Config.Embeddings.Embeddings {
		if err := embeddingParams(&r.Options, &params); err != nil {
			return err
		}
	}
	if err := r.loadAdapters(); err != nil {
		return err
	}
	if err := r.makeSampler(); err != nil {
		return err
	}
	if err := r.openStates(); err != nil {
		return err
	}
	if r.sampling.OnBackend && r.sampling.Grammar+r.sampling.GrammarFile == "" {
		params.Sampler = r.sampler
	}
	if r.llama, err = r.model.NewContext(params); err != nil {
		return fmt.Errorf("%w: lower -c or -ub, or take a smaller -ctk and -ctv", err)
	}
	if !r.Config.Embeddings.Embeddings && !r.llama.Memory().Exists() {
		return fmt.Errorf("%w %s encodes texts and generates none: give --embeddings, or take a model that does", ErrModel, r.Config.Model)
	}
	r.unwatch = interruptWith(r.ctx, r.llama)
	if err := r.setAdapters(); err != nil {
		return err
	}
	r.result.ContextSize = r.llama.Size()
	if r.batch, err = llama.NewBatch(r.llama.Batch(), 1); err != nil {
		return err
	}
	if r.shifts = r.Config.ContextShift && r.llama.Memory().CanShift(); r.Config.ContextShift && !r.shifts {
		fmt.Fprintln(r.Stderr, "llamatap: the memory of this model cannot be shifted: --context-shift is left off")
	}
	r.result.Load = time.Since(begin)
	return nil
}

// makeSampler makes the sampler from the settings and what the model recommends, and what looks for reverse prompts.
func (r *run) makeSampler() (err error) {
	r.sampling = modelSampling(r.Config, r.model, r.Stderr)
	if r.sampling.Seed == config.RandomSeed { // one for all samplers, so that the run can be repeated
		r.sampling.Seed = rand.Uint32N(config.RandomSeed)
	}
	r.result.Seed = r.sampling.Seed
	warnSampling(&r.sampling, r.model.Vocab(), r.Stderr)
	r.result.SamplesChance = r.sampling.Chance()
	if r.sampler, err = newSampler(r.model.Vocab(), &r.sampling, r.Config.Escape, r.State != nil); err != nil {
		return err
	}
	r.reverse, err = newReverse(r.model.Vocab(), r.Config.ReversePrompts, r.Config.Escape)
	return err
}

func logLevel(verbose bool) llama.LogLevel {
	if verbose {
		return llama.LogDebug
	}
	return llama.LogError
}

func (r *run) progress(what string) *present.Progress {
	return present.NewProgress(r.Progress, what)
}

// interruptWith passes the end of ctx on to x until stop is called; after that x may be closed.
func interruptWith(ctx context.Context, x *llama.Context) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			x.Interrupt()
		case <-done:
		}
	}()
	return func() { close(done); <-ended }
}

func (r *run) close() {
	r.states.close()
	if r.batch != nil {
		r.batch.Close()
	}
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.llama != nil {
		r.llama.Close()
	}
	r.closeAdapters()
	if r.sampler != nil {
		r.sampler.Close() // the context may use it
	}
	if r.model != nil {
		r.model.Close()
	}
}
