package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// Answer is the outcome of one prompt of many: one line of JSON. It holds an Error or a Completion.
type Answer struct {
	Line  int             `json:"line"`         // of the prompt file, counted from 1
	ID    json.RawMessage `json:"id,omitempty"` // as the prompt's line gave it
	Error string          `json:"error,omitempty"`
	*Completion
}

// Completion is what was generated. Times are nanoseconds of the monotonic clock since the prompt got its sequence.
type Completion struct {
	Text         string          `json:"text"`                 // invalid UTF-8 is replaced by U+FFFD
	TextBytes    []byte          `json:"text_bytes,omitempty"` // in base64, only where some of it is not UTF-8
	Tokens       []llama.Token   `json:"tokens"`
	TokenNs      []int64         `json:"token_ns"` // when each was chosen
	Logprobs     []TokenLogprobs `json:"logprobs,omitempty"`
	Finish       Finish          `json:"finish"`
	Seed         uint32          `json:"seed"` // as really used
	PromptTokens int             `json:"prompt_tokens"`
	Sequence     llama.Seq       `json:"seq_id"` // of the context, as a recording numbers it
	// of its sequence, counted from 0, as a recording does; absent where nothing was decoded
	Request      *int32 `json:"request,omitempty"`
	PromptNs     int64  `json:"prompt_ns"`     // until the logits of the prompt's last token were there
	GenerationNs int64  `json:"generation_ns"` // from there to the last token
}

// TokenLogprobs is how likely the model found a token, before any sampler.
type TokenLogprobs struct {
	ID      llama.Token    `json:"id"`
	Token   string         `json:"token"` // text; invalid UTF-8 is replaced by U+FFFD
	Logprob *float64       `json:"logprob,omitempty"`
	Top     []TokenLogprob `json:"top"` // the likeliest first, without those whose logit is NaN
}

// TokenLogprob is the natural logarithm of a token's probability; absent where that is not a finite number.
type TokenLogprob struct {
	ID      llama.Token `json:"id"`
	Token   string      `json:"token"`
	Logprob *float64    `json:"logprob,omitempty"`
}

// setText stores text whose bytes may be no UTF-8.
func (c *Completion) setText(text []byte) {
	c.Text = string(text)
	if !utf8.Valid(text) {
		c.TextBytes = slices.Clone(text)
	}
}

// logprobs computes log-probabilities of a token and of the k likeliest ones from the logits of the whole vocabulary.
func logprobs(vocab *llama.Vocab, logits []float32, token llama.Token, k int) TokenLogprobs {
	logprob := logSoftmax(logits)
	of := func(id llama.Token) TokenLogprob {
		return TokenLogprob{ID: id, Token: string(vocab.AppendPiece(nil, id, true)), Logprob: logprob(id)}
	}
	chosen := of(token)
	t := TokenLogprobs{ID: chosen.ID, Token: chosen.Token, Logprob: chosen.Logprob, Top: []TokenLogprob{}}
	for _, id := range likeliest(logits, k) {
		t.Top = append(t.Top, of(id))
	}
	return t
}

// logSoftmax finds the log-probability of a token; nil where it is not a finite number, which JSON cannot write.
func logSoftmax(logits []float32) func(llama.Token) *float64 {
	highest := slices.Max(logits)
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l - highest))
	}
	return func(id llama.Token) *float64 {
		p := float64(logits[id]-highest) - math.Log(sum)
		if math.IsNaN(p) || math.IsInf(p, 0) {
			return nil
		}
		return &p
	}
}

// likeliest are the k tokens of the highest logits, the highest first and the lower number first among equals.
func likeliest(logits []float32, k int) (top []llama.Token) {
	for id := range logits {
		if math.IsNaN(float64(logits[id])) {
			continue
		}
		at := len(top)
		for at > 0 && logits[id] > logits[top[at-1]] {
			at--
		}
		if at == k {
			continue
		}
		if len(top) == k {
			top = top[:k-1]
		}
		top = slices.Insert(top, at, llama.Token(id))
	}
	return top
}

// answers writes answers in the order of their prompts, each as soon as those before it are written.
type answers struct {
	out   io.Writer
	file  *os.File       // the same; nil: it is not ours
	ready map[int]Answer // by order, of those that wait for an earlier one
	head  int            // order of the next one to be written
	// earlier are those of the resumed run; nil: none
	earlier *earlier
}

// newAnswers makes the file for results, or leaves them to stdout. prompts is the file that is read; nil: none.
func newAnswers(o *Options, prompts *os.File) (*answers, error) {
	a := &answers{out: o.Stdout, ready: make(map[int]Answer)}
	path := o.Config.ResultsFile
	if path == "" {
		return a, nil
	}
	if info, err := os.Stat(path); err == nil && prompts != nil {
		if b, err := prompts.Stat(); err == nil && os.SameFile(info, b) {
			return nil, fmt.Errorf("--results %s is the file of the prompts: give another one", path)
		}
	}
	mode := os.O_WRONLY | os.O_TRUNC
	if o.Done != nil {
		mode = os.O_RDWR
	}
	file, err := os.OpenFile(path, os.O_CREATE|mode, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--results %s: %w: check the path", path, cli.Bare(err))
	}
	a.out, a.file = file, file
	if o.Done != nil {
		a.earlier = newEarlier(file)
	}
	return a, nil
}

// close closes the file for results.
func (a *answers) close() error {
	if a.file == nil {
		return nil
	}
	if err := a.file.Close(); err != nil {
		return fmt.Errorf("--results %s: %w", a.file.Name(), cli.Bare(err))
	}
	return nil
}

// end ends the answers when all are there: what else the file of an earlier run holds is not of this one.
func (a *answers) end() error {
	if a.earlier == nil {
		return nil
	}
	return a.earlier.end()
}

// add takes an answer, whose order is counted from 0.
func (a *answers) add(order int, answer Answer) error {
	a.ready[order] = answer
	for {
		answer, ok := a.ready[a.head]
		if !ok {
			return nil
		}
		delete(a.ready, a.head)
		a.head++
		if err := a.write(answer); err != nil {
			return err
		}
	}
}

func (a *answers) write(answer Answer) error {
	if a.earlier != nil {
		if holds, err := a.earlier.holds(&answer); holds || err != nil {
			return err
		}
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		return fmt.Errorf("line %d: write its result as JSON: %w", answer.Line, err)
	}
	if _, err := a.out.Write(line.Bytes()); err != nil {
		return fmt.Errorf("write results: %w", cli.Bare(err))
	}
	return nil
}

// PromptsResult is what a run of many prompts did.
type PromptsResult struct {
	Model        string // its name and size, for people
	ContextSize  int    // tokens of each sequence
	Answered     int    // prompts that ran to an end
	Before       int    // prompts that the resumed run had answered before
	Failed       int    // lines that had none
	Interrupted  bool
	PromptTokens int
	Tokens       int
	Load         time.Duration // model and context
	WarmUp       time.Duration
	Elapsed      time.Duration // all prompts, from the first on
}

// WriteSummary writes what a run measured, in two lines.
func (r *PromptsResult) WriteSummary(out io.Writer) error {
	ending := ""
	if r.Before > 0 {
		ending = fmt.Sprintf(" behind %d done before", r.Before)
	}
	if r.Failed > 0 {
		ending += fmt.Sprintf(", %d failed", r.Failed)
	}
	if r.Interrupted {
		ending += ", interrupted"
	}
	tokens, way := r.Tokens, "out"
	if tokens == 0 { // nothing was to be generated
		tokens, way = r.PromptTokens, "in"
	}
	_, err := fmt.Fprintf(out, `llamatap: %s, context %d per sequence, loaded in %s, warmed up in %s
llamatap: %s%s: %s in and %d out in %s (%.1f tokens/s %s)
`, r.Model, r.ContextSize, present.Duration(r.Load), present.Duration(r.WarmUp),
		present.Plural(r.Answered, "prompt"), ending, present.Plural(r.PromptTokens, "token"), r.Tokens,
		present.Duration(r.Elapsed), rate(tokens, r.Elapsed), way)
	return err
}
