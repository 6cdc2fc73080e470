package runner

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
)

// newSampler builds the chain that llama-completion builds for these settings: logit bias, penalties, top-k, top-p, min-p,
// temperature, then the choice. Samplers that llama.cpp has in between but that are off by default change nothing and are left out.
func newSampler(vocab *llama.Vocab, s config.Sampling) *llama.Sampler {
	chain := llama.NewSampler(vocab)
	chain.AddLogitBias(forbidden(vocab, s.IgnoreEOS))
	chain.AddPenalties(s.RepeatLastN, s.RepeatPenalty, s.FrequencyPenalty, s.PresencePenalty)
	chain.AddTopK(s.TopK)
	chain.AddTopP(s.TopP, 0)
	chain.AddMinP(s.MinP, 0)
	chain.AddTemperature(s.Temperature, 0, 1)
	if s.Temperature > 0 {
		chain.AddDist(s.Seed)
	} else {
		chain.AddGreedy()
	}
	return chain
}

// forbidden are the tokens that are never to be chosen: those that the model names, and with ignoreEnd all that end a text.
func forbidden(vocab *llama.Vocab, ignoreEnd bool) (biases []llama.LogitBias) {
	never := float32(math.Inf(-1))
	if ignoreEnd && vocab.End() != llama.NoToken {
		for token := llama.Token(0); int(token) < vocab.Tokens(); token++ {
			if vocab.EndsGeneration(token) {
				biases = append(biases, llama.LogitBias{Token: token, Bias: never})
			}
		}
	}
	for _, token := range vocab.Suppressed() {
		biases = append(biases, llama.LogitBias{Token: token, Bias: never})
	}
	return biases
}

// modelSampling puts in place of defaults what the model's metadata recommends (general.sampling.…), as llama-completion does. What a
// flag or the environment gave stays. It warns of recommendations that run cannot follow.
func modelSampling(cfg *config.Run, model *llama.Model, warn io.Writer) config.Sampling {
	s := cfg.Sampling
	whole := func(name, key string, to *int) {
		if text, ok := model.Meta("general.sampling." + key); ok && !cfg.Given(name) {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				*to = int(n)
			}
		}
	}
	number := func(name, key string, to *float32) {
		if text, ok := model.Meta("general.sampling." + key); ok && !cfg.Given(name) {
			if f, err := strconv.ParseFloat(text, 32); err == nil {
				*to = float32(f)
			}
		}
	}
	whole("top-k", "top_k", &s.TopK)
	number("top-p", "top_p", &s.TopP)
	number("min-p", "min_p", &s.MinP)
	number("temp", "temp", &s.Temperature)
	whole("repeat-last-n", "penalty_last_n", &s.RepeatLastN)
	number("repeat-penalty", "penalty_repeat", &s.RepeatPenalty)
	for _, key := range []string{"sequence", "xtc_probability", "mirostat"} {
		if text, ok := model.Meta("general.sampling." + key); ok && text != "0" && text != "0.000000" {
			fmt.Fprintf(warn, "llamatap: the model recommends the sampler setting %s=%s, which run does not have: llama-completion would follow it\n", key, text)
		}
	}
	return s
}
