package intervene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// Comparison runs a text through two models of one architecture and vocabulary, such as a model and its quantisation,
// and compares what they compute. The text is read in chunks, and of each the tokens of the second half are compared,
// as llama-perplexity does.
type Comparison struct {
	A, B     string // paths of the GGUF files; A is the reference
	Text     string
	Chunk    int                  // tokens of a chunk; 0: 512
	Chunks   int                  // at most; 0: all
	Points   []ggmlhooks.PointRef // that are compared
	Weights  bool                 // measure what each weight of B explains
	Diverges float64              // relative error of the residual stream from which a layer diverges
	Threads  int
	Progress func(done, total int64)
}

// worstTokens and worstChannels are how many a report lists.
const (
	worstTokens   = 10
	worstChannels = 5
	leastChunk    = 8
	defaultChunk  = 512
)

// comparer is a comparison that runs.
type comparer struct {
	Comparison
	a, b         *reader
	fileA, fileB *weightFile // open while weights are exchanged
	weights      []*weight
	report       *ComparisonReport
	errors       map[ggmlhooks.PointRef]*pointError
	kl           []float64
	same         int
	done, total  int64
}

// Run compares. When ctx ends, the report is of the chunks done until then.
func (c Comparison) Run(ctx context.Context) (*ComparisonReport, error) {
	r := &comparer{Comparison: c, report: &ComparisonReport{A: c.A, B: c.B, Diverges: c.Diverges},
		errors: map[ggmlhooks.PointRef]*pointError{}}
	r.Chunk = cmp.Or(r.Chunk, defaultChunk)
	if r.Chunk < leastChunk {
		return nil, fmt.Errorf("chunks of %d tokens are too short to compare: use %d or more", r.Chunk, leastChunk)
	}
	var err error
	if r.a, err = openReader(ctx, Options{Model: c.A, Threads: c.Threads, GPULayers: -1, Writable: c.Weights},
		r.Chunk); err != nil {
		return nil, err
	}
	defer r.a.Close()
	// As a lies in memory: repacked weights are multiplied by other kernels, which round differently.
	if r.b, err = openReader(ctx, Options{Model: c.B, Threads: c.Threads, GPULayers: -1, Plain: c.Weights},
		r.Chunk); err != nil {
		return nil, err
	}
	defer r.b.Close()
	chunks, err := r.chunks()
	if err != nil {
		return nil, err
	}
	r.report.Chunk = r.Chunk
	r.report.TrainedA, r.report.TrainedB = r.a.trainedContextBelow(r.Chunk), r.b.trainedContextBelow(r.Chunk)
	defer r.closeBoth()
	if err := r.openBoth(); err != nil {
		return nil, err
	}
	r.total = int64(len(chunks)) * int64(2+len(r.weights))
	for i, tokens := range chunks {
		if err = r.compare(ctx, i, tokens); err != nil {
			break
		}
	}
	if errors.Is(err, llama.ErrInterrupted) && r.report.Chunks > 0 {
		r.report.Partial, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	r.settle()
	return r.report, nil
}

// chunks are the tokens of the text. Each chunk begins with the token that begins texts, where the vocabulary has one.
func (c *comparer) chunks() ([][]llama.Token, error) {
	tokens, err := c.a.Vocab().Tokenize(c.Text, true, false)
	if err != nil {
		return nil, err
	}
	others, err := c.b.Vocab().Tokenize(c.Text, true, false)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(tokens, others) {
		return nil, fmt.Errorf("%s and %s read the text as different tokens: compare models of one vocabulary", c.A,
			c.B)
	}
	if len(tokens) < c.Chunk {
		return nil, fmt.Errorf("the text has %d tokens, a chunk %d: give a longer text, or shorter chunks", len(tokens),
			c.Chunk)
	}
	chunks := slices.Collect(slices.Chunk(tokens[:len(tokens)/c.Chunk*c.Chunk], c.Chunk))
	if c.Chunks > 0 {
		chunks = chunks[:min(len(chunks), c.Chunks)]
	}
	if c.a.Vocab().AddsBegin() {
		for i := range chunks {
			chunks[i] = slices.Clone(chunks[i])
			chunks[i][0] = c.a.Vocab().Begin()
		}
	}
	return chunks, nil
}

// compare compares one chunk.
func (c *comparer) compare(ctx context.Context, number int, tokens []llama.Token) error {
	a, err := c.a.read(ctx, tokens, c.Points)
	if err != nil {
		return err
	}
	c.step()
	b, err := c.b.read(ctx, tokens, c.Points)
	if err != nil {
		return err
	}
	c.step()
	for ref, rows := range a.rows {
		others := b.rows[ref]
		if len(others) != len(rows) {
			return fmt.Errorf("%s has %d rows in %s and %d in %s: compare models of one architecture", ref, len(rows),
				c.A, len(others), c.B)
		}
		if c.errors[ref] == nil {
			c.errors[ref] = &pointError{ref: ref}
		}
		for i := range rows {
			if err := c.errors[ref].add(rows[i], others[i]); err != nil {
				return err
			}
		}
	}
	for at := len(tokens) / 2; at < len(tokens)-1; at++ {
		if err := c.row(number, tokens, at, a.logits[at], b.logits[at]); err != nil {
			return err
		}
	}
	c.report.Chunks++
	for _, w := range c.weights {
		if err := c.try(ctx, w, tokens, a.logits); err != nil {
			return err
		}
		c.step()
	}
	return nil
}

// row compares what both models expect after a token.
func (c *comparer) row(chunk int, tokens []llama.Token, at int, a, b []float32) error {
	r := c.report
	kl, topA, topB := divergence(a, b), top(a), top(b)
	if math.IsNaN(kl) || math.IsInf(kl, 0) {
		model := c.A
		if sum := logSum(a); !math.IsNaN(sum) && !math.IsInf(sum, 0) {
			model = c.B
		}
		return fmt.Errorf("chunk %d, token %d: logits of %s are not finite: check the model, layer by layer with "+
			"'llamatap analyze' of a recording", chunk, at, model)
	}
	c.kl = append(c.kl, kl)
	if topA == topB {
		c.same++
	}
	next := tokens[at+1]
	r.LossA += logSum(a) - float64(a[next])
	r.LossB += logSum(b) - float64(b[next])
	place, _ := slices.BinarySearchFunc(r.Worst, kl,
		func(w WorstToken, kl float64) int { return cmp.Compare(kl, w.KL) })
	if place < worstTokens {
		r.Worst = slices.Insert(r.Worst, place, WorstToken{KL: kl, Chunk: chunk, Position: at,
			Token: c.text(tokens[at]), Next: c.text(next), A: c.text(topA), B: c.text(topB)})
		r.Worst = r.Worst[:min(len(r.Worst), worstTokens)]
	}
	return nil
}

func (c *comparer) text(token llama.Token) string {
	return string(c.a.Vocab().AppendPiece(nil, token, true))
}

func (c *comparer) step() {
	if c.done++; c.Progress != nil {
		c.Progress(c.done, c.total)
	}
}

// settle computes what needs all chunks.
func (c *comparer) settle() {
	r := c.report
	r.Tokens = len(c.kl)
	r.PerplexityA, r.PerplexityB = math.Exp(r.LossA/float64(r.Tokens)), math.Exp(r.LossB/float64(r.Tokens))
	r.SameTop = float64(c.same) / float64(r.Tokens)
	slices.Sort(c.kl)
	for _, kl := range c.kl {
		r.KLMean += kl / float64(r.Tokens)
	}
	for _, ref := range c.Points {
		if why := c.a.lack(ref); why != "" {
			r.Missing = append(r.Missing, MissingPoint{ref.String(), why})
		}
	}
	r.KLMedian, r.KLP99, r.KLMax = quantile(c.kl, 0.5), quantile(c.kl, 0.99), c.kl[r.Tokens-1]
	for _, ref := range slices.SortedFunc(maps.Keys(c.errors), func(x, y ggmlhooks.PointRef) int {
		return cmp.Or(cmp.Compare(x.Layer, y.Layer), cmp.Compare(x.Point, y.Point))
	}) {
		e := c.errors[ref].settle()
		r.Points = append(r.Points, e)
		if ref.Point == ggmlhooks.PointResidPost && r.First == nil && e.Relative >= c.Diverges {
			r.First = e.Layer
		}
	}
	for _, w := range c.weights {
		if w.rows > 0 {
			w.KL = w.sum / float64(w.rows)
			r.Weights = append(r.Weights, w.WeightError)
		}
	}
	slices.SortStableFunc(r.Weights, func(x, y WeightError) int { return cmp.Compare(y.KL, x.KL) })
}

// quantile is that of a sorted list, interpolated between neighbours, as llama-perplexity does.
func quantile(sorted []float64, q float64) float64 {
	at, share := math.Modf(q * float64(len(sorted)-1))
	i := int(at)
	return (1-share)*sorted[i] + share*sorted[min(i+1, len(sorted)-1)]
}

// divergence is the Kullback-Leibler divergence in nats of the distribution of logits b from that of a.
func divergence(a, b []float32) float64 {
	m := metric{name: "kl"}
	return m.evaluate(b, a)
}

func top(logits []float32) llama.Token {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	return llama.Token(best)
}
