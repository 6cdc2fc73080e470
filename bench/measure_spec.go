package bench

import (
	"errors"
	"fmt"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
)

// Spec says what a measuring process measures. Lengths are in tokens.
type Spec struct {
	Model string `json:"model"` // GGUF file; "" is the embedded model

	Prompt int    `json:"n_prompt"`       // length of a prompt of random tokens; with Text it is found out
	Text   string `json:"text,omitempty"` // a prompt that is continued greedily
	Gen    int    `json:"n_gen"`          // tokens that are generated
	Depth  int    `json:"n_depth"`        // tokens that lie in the context before
	// Sequences are decoded at a time, each with a prompt, a generation and a depth of these lengths; 0 is 1.
	Sequences int `json:"n_seq,omitempty"`

	Batch          int    `json:"n_batch"`
	MicroBatch     int    `json:"n_ubatch"`
	Threads        int    `json:"n_threads"`
	TypeK          string `json:"type_k"`
	TypeV          string `json:"type_v"`
	FlashAttention string `json:"flash_attn"` // on, off or auto
	GPULayers      int    `json:"n_gpu_layers"`

	Repetitions int    `json:"repetitions"`
	NoWarmUp    bool   `json:"no_warmup,omitempty"`
	Seed        uint64 `json:"seed"` // of the random tokens
	PerToken    bool   `json:"per_token,omitempty"`
}

// sequences is how many sequences are decoded at a time.
func (s *Spec) sequences() int { return max(s.Sequences, 1) }

// check finds what no process could measure.
func (s *Spec) check() error {
	switch {
	case s.Prompt < 0 || s.Gen < 0 || s.Depth < 0:
		return errors.New("a length of a prompt, of a generation or of a depth is negative: give 0 or more tokens")
	case s.Prompt == 0 && s.Gen == 0 && s.Text == "":
		return errors.New("neither a prompt nor a generation: give one of them a length above 0")
	case s.Batch < 1 || s.MicroBatch < 1:
		return fmt.Errorf("batches of %d and micro-batches of %d tokens: give both at least 1", s.Batch, s.MicroBatch)
	case s.Sequences < 0 || s.sequences() > s.Batch:
		return fmt.Errorf("%d sequences in batches of %d tokens: give at least 1, and no more than a batch holds",
			s.Sequences, s.Batch)
	case s.sequences() > 1 && s.Text != "":
		return errors.New("a text is continued in one sequence: give a prompt of a length for several")
	case s.Threads < 1 || s.Threads > config.MaxThreads:
		return fmt.Errorf("%d threads: give 1 to %d", s.Threads, config.MaxThreads)
	case s.Repetitions < 1:
		return fmt.Errorf("%d repetitions: give at least 1", s.Repetitions)
	}
	for _, text := range []string{s.TypeK, s.TypeV} {
		if _, err := llama.ParseCacheType(text); err != nil {
			return err
		}
	}
	_, err := llama.ParseFlashAttention(s.FlashAttention)
	return err
}

// measureLine is one line of a measuring process's output: one of its fields is set. The first line has Subject.
type measureLine struct {
	Subject    *Subject    `json:"subject,omitempty"`
	Repetition *Repetition `json:"repetition,omitempty"`
}

// Subject is what was measured: the model and the machine as llama.cpp names them.
type Subject struct {
	Type       string `json:"model_type"`
	SizeBytes  uint64 `json:"model_size"`
	Parameters uint64 `json:"model_n_params"`
	Prompt     int    `json:"n_prompt"` // the prompt's length in tokens, of a text too
	CPU        string `json:"cpu_info"`
	GPU        string `json:"gpu_info"`
	Backends   string `json:"backends"`
	LoadNS     int64  `json:"load_ns"`
}

// Repetition is one timed pass. Times are nanoseconds.
type Repetition struct {
	Time string `json:"time"` // when it began, RFC 3339
	// MonoNS is when it began by the machine's monotonic clock; absent where that is not known.
	MonoNS int64 `json:"mono_ns,omitempty"`
	NS     int64 `json:"ns"` // of prompt and generation together
	// FirstNS is the time until what follows the prompt was known: its logits, and with a text the token; absent
	// without a prompt.
	FirstNS int64   `json:"first_ns,omitempty"`
	TokenNS []int64 `json:"token_ns,omitempty"` // of each generated token
	Steps   []Step  `json:"steps,omitempty"`    // with Spec.PerToken
}

// Step is one row of a repetition: the whole prompt, or one generated token.
type Step struct {
	Phase  string `json:"phase"`    // prefill or decode
	AtNS   int64  `json:"at_ns"`    // when it began, since the repetition began
	NS     int64  `json:"ns"`       // how long it took
	Tokens int    `json:"n_tokens"` // that it decoded, in each sequence
	// KVCells is how many cells of the KV cache each sequence has after it; absent where the cache does not keep
	// every position.
	KVCells int `json:"kv_cells,omitempty"`
	// MinorFaults and MajorFaults are the process's page faults meanwhile; absent where the system does not count them.
	MinorFaults *int64 `json:"minor_faults,omitempty"`
	MajorFaults *int64 `json:"major_faults,omitempty"`
	// Captured is the bytes of tensors that the tap copied meanwhile; who started the process adds it. Absent where
	// nothing was recorded.
	Captured *int64 `json:"captured_bytes,omitempty"`
}

// The phases of a step.
const (
	PhasePrefill = "prefill"
	PhaseDecode  = "decode"
)
