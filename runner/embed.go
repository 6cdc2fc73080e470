package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// embeddingSequences is how many texts a batch holds at most; llama.cpp's number.
const embeddingSequences = 256

// EmbeddingsResult is what a run for embeddings did.
type EmbeddingsResult struct {
	Model   string // its name and size, for people
	Texts   int
	Tokens  int
	Load    time.Duration // model and context
	Elapsed time.Duration // decoding
}

// WriteSummary writes what a run measured, in one line.
func (r *EmbeddingsResult) WriteSummary(out io.Writer) error {
	_, err := fmt.Fprintf(out, "llamatap: %s, loaded in %s: embeddings of %s, %s\n", r.Model,
		present.Duration(r.Load), present.Plural(r.Texts, "text"),
		perSecond(r.Tokens, r.Elapsed, rate(r.Tokens, r.Elapsed)))
	return err
}

// RunEmbeddings loads a model and writes the embeddings of the prompt's texts, which Config.EmbdSeparator separates, to
// Options.Stdout as llama-embedding does with the same settings: the same batches, numbers and forms. With pooling rank
// they are scores. When ctx ends, nothing is written, and the error wraps ErrInterrupted and the cause of ctx.
func RunEmbeddings(ctx context.Context, o Options) (result EmbeddingsResult, err error) {
	runtime.LockOSThread() // one thread, so that OpenMP keeps one team
	defer runtime.UnlockOSThread()
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if err := CheckModel(o.Config.Model); err != nil {
		return result, err
	}
	prompt, err := ReadPrompt(ctx, o.Config, o.Stdin)
	if err != nil {
		return result, err
	}
	e := &embeddings{engine: engine{Options: o, ctx: ctx}, texts: strings.Split(prompt, o.Config.EmbdSeparator)}
	defer e.close()
	if err := e.load(); err != nil {
		return result, err
	}
	result = EmbeddingsResult{Model: e.result.Model, Texts: len(e.texts), Load: e.result.Load}
	begin := time.Now()
	err = e.compute()
	result.Tokens, result.Elapsed = e.tokens, time.Since(begin)
	switch {
	case errors.Is(err, llama.ErrInterrupted):
		return result, fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	case err != nil || o.Stdout == nil:
		return result, err
	}
	if _, err := io.WriteString(o.Stdout, e.String()); err != nil {
		return result, fmt.Errorf("write embeddings: %w", cli.Bare(err))
	}
	return result, nil
}

// embeddings is the state of one RunEmbeddings.
type embeddings struct {
	engine
	texts     []string
	tokens    int
	queued    int         // texts in the batch
	sequences int         // most of them
	rows      [][]float32 // finished embeddings, one per text or token
}

// embeddingParams changes the settings of a context for embeddings, as llama-embedding does: all texts share its
// memory, and a text whose tokens look at those behind them must be in one graph.
func embeddingParams(o *Options, p *llama.ContextParams) (err error) {
	p.Embeddings, p.Unified = true, true
	if p.Pooling, err = llama.ParsePooling(o.Config.Pooling); err != nil {
		return err
	}
	switch o.Config.Attention {
	case "causal":
		p.Attention = llama.AttentionCausal
	case "non-causal":
		p.Attention = llama.AttentionNonCausal
	}
	p.Batch = max(min(p.Batch, p.MicroBatch), p.Size)
	if p.Attention != llama.AttentionCausal {
		p.MicroBatch = p.Batch
	}
	p.MicroBatch = min(p.MicroBatch, p.Batch)
	graph := min(p.MicroBatch, cmp.Or(p.Size, p.MicroBatch)) // with causal attention no larger than the context
	for p.Sequences = min(embeddingSequences, graph); graph%p.Sequences != 0 || p.MicroBatch%p.Sequences != 0; {
		// where they do not divide a graph's tokens, llama.cpp may end the process, as it does llama-embedding's
		p.Sequences--
	}
	return nil
}

// compute fills rows.
func (e *embeddings) compute() error {
	if err := e.checkRank(); err != nil {
		return err
	}
	var all [][]llama.Token
	for i, text := range e.texts {
		tokens, err := e.model.Vocab().Tokenize(e.paired(text), true, true)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPrompt, err)
		}
		switch {
		case len(tokens) == 0:
			return fmt.Errorf("%w: text %d is empty, and this model has no token to begin a text with: leave it out",
				ErrPrompt, i+1)
		case len(tokens) > e.llama.Batch():
			return fmt.Errorf("%w: text %d has %d tokens, and a batch has room for %d: shorten it, or raise -c, -b "+
				"and -ub", ErrTooLong, i+1, len(tokens), e.llama.Batch())
		}
		all = append(all, tokens)
	}
	e.batch.Reset()
	e.sequences = e.llama.Sequences()
	for _, tokens := range all {
		if e.batch.Len()+len(tokens) > e.llama.Batch() || e.queued == e.sequences {
			if err := e.flush(); err != nil {
				return err
			}
		}
		for i, token := range tokens {
			if err := e.batch.Add(token, llama.Pos(i), true, llama.Seq(e.queued)); err != nil {
				return err
			}
		}
		e.queued++
	}
	return e.flush()
}

// flush decodes the batch and takes its embeddings.
func (e *embeddings) flush() error {
	e.llama.Memory().Clear(true)
	if err := e.llama.Decode(e.batch); err != nil {
		return err
	}
	count, at := e.queued, func(i int) ([]float32, error) { return e.llama.SequenceEmbedding(llama.Seq(i)) }
	if e.llama.Pooling() == llama.PoolNone {
		count, at = e.batch.Len(), e.llama.Embedding
	}
	for i := range count {
		row, err := at(i)
		if err != nil {
			return err
		}
		if e.ranks() {
			e.rows = append(e.rows, slices.Clone(row))
		} else {
			e.rows = append(e.rows, normalized(row, e.Config.EmbdNormalize))
		}
	}
	e.tokens += e.batch.Len()
	e.batch.Reset()
	e.queued = 0
	return nil
}
