package runner

import (
	"errors"
	"io"
	"time"

	"github.com/llamatap/llamatap/config"
)

// Errors of Run, wrapped with cause and remedy; test with errors.Is. Errors of packages gguf and llama come through
// as well.
var (
	// ErrPrompt: the prompt cannot be read, is empty, or is not valid UTF-8.
	ErrPrompt = errors.New("prompt")
	// ErrTooLong: the prompt does not fit into the context.
	ErrTooLong = errors.New("prompt is too long")
	// ErrModel: the model file is missing, broken, or of a kind that generates no text.
	ErrModel = errors.New("model")
	// ErrInterrupted: the context of Run ended; its cause is wrapped too.
	ErrInterrupted = errors.New("interrupted")
)

// Options is one run. Its zero value is not a run: Config is needed.
type Options struct {
	// Config says what to run; its Validate has passed.
	Config *config.Run
	// Stdin is read when the prompt file is "-", and never otherwise.
	Stdin io.Reader
	// Stdout gets the generated text, in whole UTF-8 characters as they come; nil: nobody.
	Stdout io.Writer
	// Stderr gets warnings; nil: nobody.
	Stderr io.Writer
	// Progress, a terminal, gets bars while the model loads and a long prompt is decoded; nil: none.
	Progress io.Writer
	// TextEvery, unless it is 0, lets Run write the text of every so many tokens before more are decoded, so that
	// it is not far behind what a checkpoint holds. In any case it is written 30 ms later at most.
	TextEvery int
	// Seed, unless it is 0, is where RunPrompts takes seeds from that would be random, another for each prompt, so
	// that it can be repeated.
	Seed uint32
	// Done, unless it is nil, says what RunPrompts continues.
	Done *Done
	// State, unless it is nil, lets Run keep what it can be resumed from, or begin there.
	State *State
	// KeepCold leaves the warm-up out that Config may ask for: a resumed run had it when it began.
	KeepCold bool
}

// Finish is why generation ended.
type Finish string

// Reasons to end.
const (
	FinishStop        Finish = "stop"        // the model ended the text
	FinishLength      Finish = "length"      // as many tokens as asked for
	FinishReverse     Finish = "reverse"     // a reverse prompt came up
	FinishWord        Finish = "word"        // a text of a prompt's "stop" came up
	FinishContext     Finish = "context"     // the context is full
	FinishInterrupted Finish = "interrupted" // the context of Run ended
)

// Result is what a run did. Times were measured with the monotonic clock.
type Result struct {
	Model         string        // its name and size, for people
	ContextSize   int           // tokens
	Seed          uint32        // as really used
	PromptTokens  int           // decoded
	CachedTokens  int           // of the prompt, taken from the prompt cache
	Shifts        int           // times that the context was shifted
	Tokens        int           // generated, an ending one included
	DecodeSteps   int           // generated tokens that were decoded too: the last one is not
	Load          time.Duration // model and context
	WarmUp        time.Duration
	Prompt        time.Duration // decoding the prompt until its logits were there
	Generation    time.Duration // from there to the last token: sampling, decoding, writing
	Finish        Finish
	SamplesChance bool // false: every choice was the likeliest token
}

// PromptRate is the tokens of the prompt decoded per second; 0 when unknown.
func (r *Result) PromptRate() float64 { return rate(r.PromptTokens, r.Prompt) }

// GenerationRate is the decode steps per second; 0 when there was none.
func (r *Result) GenerationRate() float64 { return rate(r.DecodeSteps, r.Generation) }

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
