package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
)

// engine is a loaded model with what decoding and choosing tokens need, and the settings of the run that uses it.
type engine struct {
	Options
	ctx      context.Context
	model    *llama.Model
	llama    *llama.Context
	batch    *llama.Batch
	adapters adapters
	sampler  *llama.Sampler
	sampling config.Sampling
	reverse  reverse
	unwatch  func()
	shifts   bool // a full context is shifted
	packs    bool // prompts are packed into full micro-batches
	result   Result
}

// load brings the model into memory and makes what decoding needs.
func (e *engine) load() (err error) {
	begin := time.Now()
	llama.SetLog(logLevel(e.Config.Verbose))
	bar := e.progress("loading the model")
	e.model, err = loadModel(e.ctx, e.Config, bar.Set)
	bar.Done()
	if err != nil {
		return err
	}
	e.result.Model = describe(e.model)
	params, err := contextParams(e.Config)
	if err != nil {
		return err
	}
	if e.packs = e.Config.Packs() && !e.model.Recurrent(); e.packs {
		// llama.cpp's batches are no larger, and have room for all
		size := cmp.Or(params.Size, e.model.TrainedContext())
		params.Sequences, params.Unified = min(maxPacked, params.Batch, params.MicroBatch, size), true
	}
	if e.Config.Embeddings.Embeddings {
		if err := embeddingParams(&e.Options, &params); err != nil {
			return err
		}
	}
	if e.adapters, err = loadAdapters(e.Config, e.model); err != nil {
		return err
	}
	if err := e.makeSampler(); err != nil {
		return err
	}
	if e.sampling.OnBackend && e.sampling.Grammar+e.sampling.GrammarFile == "" {
		params.Sampler = e.sampler
	}
	if e.llama, err = e.model.NewContext(params); err != nil {
		return fmt.Errorf("%w: lower -c or -ub, or take a smaller -ctk and -ctv", err)
	}
	if !e.Config.Embeddings.Embeddings && !e.llama.Memory().Exists() {
		return fmt.Errorf("%w %s encodes texts and generates none: give --embeddings, or take a model that does",
			ErrModel, e.Config.Model)
	}
	e.unwatch = interruptWith(e.ctx, e.llama)
	if err := e.adapters.set(e.Config, e.model, e.llama); err != nil {
		return err
	}
	e.result.ContextSize = e.llama.Size()
	if e.batch, err = llama.NewBatch(e.llama.Batch(), 1); err != nil {
		return err
	}
	if e.shifts = e.Config.ContextShift && e.llama.Memory().CanShift(); e.Config.ContextShift && !e.shifts {
		fmt.Fprintln(e.Stderr, "llamatap: the memory of this model cannot be shifted: --context-shift is left off")
	}
	e.result.Load = time.Since(begin)
	return nil
}

// makeSampler makes the sampler from the settings and what the model recommends, and what looks for reverse prompts.
func (e *engine) makeSampler() (err error) {
	e.sampling = modelSampling(e.Config, e.model, e.Stderr)
	if e.sampling.Seed == config.RandomSeed { // one for all samplers, so that the run can be repeated
		e.sampling.Seed = rand.Uint32N(config.RandomSeed)
	}
	e.result.Seed = e.sampling.Seed
	warnSampling(&e.sampling, e.model.Vocab(), e.Stderr)
	e.result.SamplesChance = e.sampling.Chance()
	if e.sampler, err = newSampler(e.model.Vocab(), &e.sampling, e.Config.Escape, e.State != nil); err != nil {
		return err
	}
	e.reverse, err = newReverse(e.model.Vocab(), e.Config.ReversePrompts, e.Config.Escape)
	return err
}

func logLevel(verbose bool) llama.LogLevel {
	if verbose {
		return llama.LogDebug
	}
	return llama.LogError
}

func (e *engine) progress(what string) *present.Progress {
	return present.NewProgress(e.Progress, what)
}

// interruptWith passes the end of ctx on to x until stop is called; after that x may be closed.
func interruptWith(ctx context.Context, x *llama.Context) (stop func()) {
	interrupted := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() { x.Interrupt(); close(interrupted) })
	return func() {
		if !cancel() {
			<-interrupted
		}
	}
}

func (e *engine) close() {
	if e.batch != nil {
		e.batch.Close()
	}
	if e.unwatch != nil {
		e.unwatch()
	}
	if e.llama != nil {
		e.llama.Close()
	}
	e.adapters.close()
	if e.sampler != nil {
		e.sampler.Close() // the context may use it
	}
	if e.model != nil {
		e.model.Close()
	}
}

// warmUp decodes the tokens that begin and end a text and forgets them, as llama.cpp does, so that the run finds
// weights and threads ready.
func (e *engine) warmUp() error {
	begin := time.Now()
	vocab := e.model.Vocab()
	var tokens []llama.Token
	for _, token := range []llama.Token{vocab.Begin(), vocab.End()} {
		if token != llama.NoToken {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 {
		tokens = []llama.Token{0}
	}
	s := sequence{llama: e.llama, batch: e.batch}
	err := s.decode(tokens[:min(len(tokens), e.llama.Batch())], true)
	e.llama.Memory().Clear(true)
	e.llama.Synchronize()
	e.llama.PerfReset()
	e.sampler.Reset()
	e.result.WarmUp = time.Since(begin)
	return err
}

// sequence is what one sequence of a context holds.
type sequence struct {
	llama *llama.Context
	batch *llama.Batch
	pos   llama.Pos // where the next token goes
}

// decode decodes tokens behind those before; output asks for the logits of the last one. An interrupted decode leaves
// the micro-batches that were computed.
func (s *sequence) decode(tokens []llama.Token, output bool) error {
	s.batch.Reset()
	for i, token := range tokens {
		if err := s.batch.Add(token, s.pos+llama.Pos(i), output && i == len(tokens)-1, 0); err != nil {
			return err
		}
	}
	s.pos += llama.Pos(len(tokens))
	err := s.llama.Decode(s.batch)
	if err != nil {
		s.pos = held(s.llama, 0)
	}
	return err
}

// held is the position after the last one that a sequence has in the cache.
func held(x *llama.Context, seq llama.Seq) llama.Pos {
	if !x.Memory().Exists() {
		return 0
	}
	_, last := x.Memory().Range(seq)
	return last + 1
}

// promptTokens are the tokens of a request.
func (e *engine) promptTokens(q *config.Request) (tokens []llama.Token, err error) {
	vocab := e.model.Vocab()
	switch {
	case q.Tokens != nil:
		for _, id := range q.Tokens {
			if id < 0 || int(id) >= vocab.Tokens() {
				return nil, fmt.Errorf("there is no token %d: this model has tokens 0 to %d", id, vocab.Tokens()-1)
			}
			tokens = append(tokens, llama.Token(id))
		}
	case q.Messages != nil:
		if q.Prompt, err = chatPrompt(e.model, e.Config.ChatTemplate, q.Messages); err != nil {
			return nil, err
		}
		fallthrough
	default:
		if tokens, err = vocab.Tokenize(q.Prompt, true, true); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPrompt, err)
		}
	}
	if len(tokens) == 0 && !vocab.AddsBegin() {
		return nil, fmt.Errorf("%w is empty, and this model has no token to begin a text with: give some text",
			ErrPrompt)
	}
	if len(tokens) == 0 {
		tokens = append(tokens, vocab.Begin())
	}
	if size := e.llama.SequenceSize(); len(tokens) > size-contextMargin {
		return nil, fmt.Errorf("%w: it has %d tokens, and a sequence of %d has room for %d: shorten it, raise -c, "+
			"or lower -np", ErrTooLong, len(tokens), size, size-contextMargin)
	}
	return tokens, nil
}

// chatPrompt writes a conversation as the text that the model's answer continues.
func chatPrompt(model *llama.Model, template string, messages []config.Message) (string, error) {
	if template == "" {
		var ok bool
		if template, ok = model.ChatTemplate(); !ok {
			return "", errors.New(
				`the model has no template for "messages": give --chat-template NAME, such as chatml, or a "prompt"`)
		}
	}
	list := make([]llama.ChatMessage, len(messages))
	for i, m := range messages {
		list[i] = llama.ChatMessage(m)
	}
	text, err := llama.ApplyChatTemplate(template, list, true)
	if errors.Is(err, llama.ErrChatTemplate) {
		return "", fmt.Errorf("%w: give --chat-template with one of %s, or use 'llamatap llama-cli', which runs "+
			"any template", err, strings.Join(llama.ChatTemplates(), ", "))
	}
	return text, err
}
