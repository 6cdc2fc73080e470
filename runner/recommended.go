package runner

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
)

// modelSampling puts in place of defaults what the model's metadata recommends (general.sampling.…), as
// llama-completion does. What a flag or the environment gave stays.
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
	if text, ok := model.Meta("general.sampling.sequence"); ok && !cfg.Given("samplers") && text != "" {
		s.Samplers = recommendedSamplers(text, warn)
		if cfg.Given("sampler-seq") { // llama-completion heeds it as little
			fmt.Fprintf(warn, "llamatap: the model recommends the samplers %s, which count before --sampler-seq: "+
				"give --samplers instead\n", text)
		}
	}
	whole("top-k", "top_k", &s.TopK)
	number("top-p", "top_p", &s.TopP)
	number("min-p", "min_p", &s.MinP)
	number("xtc-probability", "xtc_probability", &s.XTCProbability)
	number("xtc-threshold", "xtc_threshold", &s.XTCThreshold)
	number("temp", "temp", &s.Temperature)
	whole("repeat-last-n", "penalty_last_n", &s.RepeatLastN)
	number("repeat-penalty", "penalty_repeat", &s.RepeatPenalty)
	whole("mirostat", "mirostat", &s.Mirostat)
	number("mirostat-ent", "mirostat_tau", &s.MirostatTau)
	number("mirostat-lr", "mirostat_eta", &s.MirostatEta)
	if s.RepeatLastN > config.MaxLastTokens {
		fmt.Fprintf(warn, "llamatap: the model recommends penalties over %d tokens: they look at %d\n", s.RepeatLastN,
			config.MaxLastTokens)
		s.RepeatLastN = config.MaxLastTokens
	}
	if s.Mirostat < 0 || s.Mirostat > 2 {
		fmt.Fprintf(warn, "llamatap: the model recommends Mirostat %d, which does not exist: it is left off\n",
			s.Mirostat)
		s.Mirostat = 0
	}
	return s
}

// recommendedSamplers reads a list that a model's metadata holds; what it does not know is left out with a warning.
func recommendedSamplers(list string, warn io.Writer) []string {
	names := []string{}
	for word := range strings.SplitSeq(list, ";") {
		if name, ok := config.ParseSampler(word); ok {
			names = append(names, name)
		} else {
			fmt.Fprintf(warn, "llamatap: the model recommends the sampler %q, which does not exist: it is left out\n",
				word)
		}
	}
	return names
}
