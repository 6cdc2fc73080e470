package config

import (
	"math"
	"slices"
	"strings"
)

// Sampling is how tokens are chosen. NewRun gives the defaults; the zero value is not valid.
type Sampling struct {
	Seed     uint32   // RandomSeed: one from the system
	Samplers []string // what is applied, in this order; names of SamplerNames

	Temperature      float32 // 0: only the likeliest token stays
	DynatempRange    float32 // above 0: the temperature follows the entropy, this far up and down
	DynatempExponent float32
	TopK             int
	TopP             float32
	MinP             float32
	TopNSigma        float32
	TypicalP         float32
	XTCProbability   float32
	XTCThreshold     float32
	RepeatLastN      int
	RepeatPenalty    float32
	PresencePenalty  float32
	FrequencyPenalty float32

	DryMultiplier    float32
	DryBase          float32
	DryAllowedLength int
	DryLastN         int
	DryBreakers      []string // escapes are not processed yet

	AdaptiveTarget float32 // matters with the sampler adaptive_p
	AdaptiveDecay  float32
	Mirostat       int // 1 or 2: Samplers do not count, but for the temperature
	MirostatTau    float32
	MirostatEta    float32

	LogitBias   []LogitBias
	IgnoreEOS   bool
	Grammar     string // GBNF; "": none
	GrammarFile string // file with it; "": none
	OnBackend   bool   // sample in the graph where it can be done
}

// LogitBias is added to a token's logit before anything else looks at it.
type LogitBias struct {
	Token int32
	Bias  float32
}

// RandomSeed, as a seed, takes one from the system.
const RandomSeed uint32 = math.MaxUint32

// Chance reports whether chance has a part in the choice; otherwise it is always the likeliest token.
func (s *Sampling) Chance() bool {
	if s.Mirostat == 0 && (!slices.Contains(s.Samplers, "temperature") || s.DynatempRange > 0) {
		return true
	}
	return s.Temperature > 0
}

func defaultSampling() Sampling {
	return Sampling{
		Seed: RandomSeed, Samplers: strings.Split(defaultSamplers, ";"), Temperature: 0.8, DynatempExponent: 1,
		TopK: 40, TopP: 0.95, MinP: 0.05,
		TopNSigma: -1, TypicalP: 1, XTCThreshold: 0.1, RepeatLastN: 64, RepeatPenalty: 1,
		DryBase: 1.75, DryAllowedLength: 2, DryLastN: 64, DryBreakers: []string{"\n", ":", `"`, "*"},
		AdaptiveTarget: -1, AdaptiveDecay: 0.9, MirostatTau: 5, MirostatEta: 0.1,
	}
}

const defaultSamplers = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"

// samplerLetters are the samplers by llama.cpp's letters for them.
var samplerLetters = map[rune]string{
	'e': "penalties", 'd': "dry", 's': "top_n_sigma", 'k': "top_k", 'y': "typ_p", 'p': "top_p", 'm': "min_p",
	'x': "xtc", 't': "temperature",
	'i': "infill", 'a': "adaptive_p",
}

// samplerAliases are llama.cpp's other names, besides those with dashes or nothing for underscores.
var samplerAliases = map[string]string{"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"}

// SamplerNames are the names that Sampling.Samplers may hold, sorted.
func SamplerNames() (names []string) {
	for _, name := range samplerLetters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ParseSampler returns the name of a sampler that is written as llama.cpp takes it: in any case, with dashes, or by
// an alias.
func ParseSampler(word string) (name string, ok bool) {
	word = strings.ToLower(word)
	if name, ok = samplerAliases[word]; ok {
		return name, true
	}
	for _, name := range samplerLetters {
		if word == name || word == strings.ReplaceAll(name, "_", "-") || word == strings.ReplaceAll(name, "_", "") {
			return name, true
		}
	}
	return "", false
}
