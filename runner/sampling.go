package runner

import (
	"fmt"
	"io"
	"math"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
)

// newSampler builds what llama-completion builds for these settings: logit bias, the samplers in their order and
// the one that chooses, and the grammar beside them. Mirostat replaces all but bias and temperature. counted lets
// the chain count what is chosen by chance.
func newSampler(vocab *llama.Vocab, s *config.Sampling, escape, counted bool) (*llama.Sampler, error) {
	biases, err := logitBiases(vocab, s)
	if err != nil {
		return nil, err
	}
	grammar, err := readGrammar(s)
	if err != nil {
		return nil, err
	}
	chain := llama.NewSampler(vocab)
	chain.AddLogitBias(biases)
	switch s.Mirostat {
	case 1:
		chain.AddTemperature(s.Temperature, 0, 1)
		chain.AddMirostat(s.MirostatTau, s.MirostatEta, s.Seed)
	case 2:
		chain.AddTemperature(s.Temperature, 0, 1)
		chain.AddMirostat2(s.MirostatTau, s.MirostatEta, s.Seed)
	default:
		addSamplers(chain, s, escape, counted)
	}
	if grammar == "" {
		return chain, nil
	}
	if err := chain.SetGrammar(grammar, "root"); err != nil {
		chain.Close()
		return nil, fmt.Errorf("%s: %w: correct the grammar, which begins at its rule root", grammarName(s), err)
	}
	return chain, nil
}

// addSamplers adds the samplers in their order and, wherever adaptive_p stands, at the end the one that chooses.
func addSamplers(chain *llama.Sampler, s *config.Sampling, escape, counted bool) {
	count := func() {
		if counted {
			chain.CountChoices()
		}
	}
	adaptive := false
	for _, name := range s.Samplers {
		switch name {
		case "penalties":
			chain.AddPenalties(s.RepeatLastN, s.RepeatPenalty, s.FrequencyPenalty, s.PresencePenalty)
		case "dry":
			chain.AddDry(dry(s, escape))
		case "top_n_sigma":
			chain.AddTopNSigma(s.TopNSigma)
		case "top_k":
			chain.AddTopK(s.TopK)
		case "typ_p":
			chain.AddTypical(s.TypicalP, 0)
		case "top_p":
			chain.AddTopP(s.TopP, 0)
		case "min_p":
			chain.AddMinP(s.MinP, 0)
		case "xtc":
			count()
			chain.AddXTC(s.XTCProbability, s.XTCThreshold, 0, s.Seed)
		case "temperature":
			chain.AddTemperature(s.Temperature, s.DynatempRange, s.DynatempExponent)
		case "infill":
			chain.AddInfill()
		case "adaptive_p":
			adaptive = true
		}
	}
	if adaptive {
		chain.AddAdaptive(s.AdaptiveTarget, s.AdaptiveDecay, s.Seed)
	} else {
		count()
		chain.AddDist(s.Seed)
	}
}

func dry(s *config.Sampling, escape bool) llama.Dry {
	d := llama.Dry{Multiplier: s.DryMultiplier, Base: s.DryBase, AllowedLength: s.DryAllowedLength, LastN: s.DryLastN,
		Breakers: s.DryBreakers}
	if escape {
		d.Breakers = make([]string, len(s.DryBreakers))
		for i, text := range s.DryBreakers {
			d.Breakers[i] = unescape(text)
		}
	}
	return d
}

// logitBiases are the biases that were asked for, those that forbid what ends a text, and the tokens that the model
// forbids.
func logitBiases(vocab *llama.Vocab, s *config.Sampling) (biases []llama.LogitBias, err error) {
	never := float32(math.Inf(-1))
	for _, b := range s.LogitBias {
		if int(b.Token) >= vocab.Tokens() {
			return nil, fmt.Errorf("--logit-bias: there is no token %d: this model has tokens 0 to %d", b.Token,
				vocab.Tokens()-1)
		}
		biases = append(biases, llama.LogitBias{Token: llama.Token(b.Token), Bias: b.Bias})
	}
	if s.IgnoreEOS && vocab.End() != llama.NoToken {
		for token := llama.Token(0); int(token) < vocab.Tokens(); token++ {
			if vocab.EndsGeneration(token) {
				biases = append(biases, llama.LogitBias{Token: token, Bias: never})
			}
		}
	}
	for _, token := range vocab.Suppressed() {
		biases = append(biases, llama.LogitBias{Token: token, Bias: never})
	}
	return biases, nil
}

// maxGrammar bounds a grammar in bytes.
const maxGrammar = 1 << 20

// readGrammar is the grammar that was asked for, or "".
func readGrammar(s *config.Sampling) (string, error) {
	if s.GrammarFile == "" {
		return s.Grammar, nil
	}
	text, err := cli.ReadFile(s.GrammarFile, maxGrammar)
	switch {
	case err != nil:
		return "", fmt.Errorf("--grammar-file %s: %w: check the path, or give the grammar with --grammar",
			s.GrammarFile, cli.Bare(err))
	case len(text) == 0:
		return "", fmt.Errorf("--grammar-file %s is empty: write a grammar in GBNF into it, or leave the flag out",
			s.GrammarFile)
	}
	return string(text), nil
}

func grammarName(s *config.Sampling) string {
	if s.GrammarFile != "" {
		return "--grammar-file " + s.GrammarFile
	}
	return "--grammar"
}

// warnSampling warns of settings without effect, as llama-completion does.
func warnSampling(s *config.Sampling, vocab *llama.Vocab, warn io.Writer) {
	if s.IgnoreEOS && vocab.End() == llama.NoToken {
		fmt.Fprintln(warn, "llamatap: this model has no token that ends a text: --ignore-eos changes nothing")
	}
	if s.OnBackend && s.Grammar+s.GrammarFile != "" {
		fmt.Fprintln(warn, "llamatap: a grammar cannot be followed on a device: --backend-sampling is left off")
	}
}
