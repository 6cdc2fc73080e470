package config

import (
	"errors"
	"slices"
)

// Embeddings is how a run computes embeddings in place of text.
type Embeddings struct {
	Embeddings    bool   // compute them
	Pooling       string // how one comes of a text's tokens: a name of poolings; "": as the model says
	Attention     string // causal, non-causal; "": as the model says
	EmbdNormalize int    // -1: not, 0: to the range of 16-bit integers, 1: taxicab, 2: euclidean, above: p-norm
	EmbdFormat    string // a name of embeddingFormats
	EmbdSeparator string // between texts
	ClsSeparator  string // between query and document of a text that is scored
}

var (
	poolings         = []string{"none", "mean", "cls", "last", "rank"}
	embeddingFormats = []string{"", "array", "json", "json+", "raw"}
)

func embeddingsOptions() []llamaOption {
	return []llamaOption{
		{section: "embeddings", flag: "--embeddings, --embedding", own: true,
			help: "compute embeddings of the prompt's lines, as llama-embedding does, in place of text",
			set:  boolean(func(r *Run) *bool { return &r.Embeddings.Embeddings })},
		{flag: "--pooling TYPE", env: "LLAMA_ARG_POOLING", own: true,
			help: "what one embedding of a text is: none (one per token), mean, cls, last, or rank: scores; without " +
				"it as the model says",
			set: word(func(r *Run) *string { return &r.Pooling }, poolings)},
		{flag: "--attention TYPE", own: true,
			help: "causal or non-causal; without it as the model says; with causal, a text may be longer than -ub",
			set:  word(func(r *Run) *string { return &r.Attention }, []string{"causal", "non-causal"})},
		{flag: "--embd-normalize N", byDef: "2", own: true,
			help: "-1: as computed, 0: to 16-bit integers, 1: taxicab, 2: euclidean, above 2: p-norm",
			set:  integer(func(r *Run) *int { return &r.EmbdNormalize }, -1, "-1 for none, or the number of a norm")},
		{flag: "--embd-output-format FORMAT", own: true,
			help: "array, json (OpenAI's), json+ (with similarities), raw (a line per embedding); without it for " +
				"people",
			set: setEmbeddingFormat},
		{flag: "--embd-separator STRING", own: true, help: "what separates texts, in place of a newline",
			set: setSeparator(func(r *Run) *string { return &r.EmbdSeparator })},
		{flag: "--cls-separator STRING", own: true,
			help: "what parts query and document of a text, with --pooling rank, in place of a tab",
			set:  setSeparator(func(r *Run) *string { return &r.ClsSeparator })},
	}
}

func setEmbeddingFormat(r *Run, s string) error {
	if !slices.Contains(embeddingFormats, s) {
		return errors.New("take array, json, json+ or raw")
	}
	r.EmbdFormat = s
	return nil
}

// setSeparator takes any text but none.
func setSeparator(to func(*Run) *string) func(*Run, string) error {
	return func(r *Run, s string) error {
		if s == "" {
			return errors.New("no text: give one, or leave the flag out")
		}
		*to(r) = s
		return nil
	}
}
