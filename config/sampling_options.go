package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

func samplingOptions() []llamaOption {
	return slices.Concat(chainOptions(), penaltyOptions(), choiceOptions())
}

func anyNumber(field func(*Run) *float32) func(*Run, string) error {
	return number32(field, math.Inf(-1), math.Inf(1))
}

// chainOptions are the order of the samplers, and those that leave unlikely tokens out.
func chainOptions() []llamaOption {
	return []llamaOption{
		{section: "sampling", flag: "-s, --seed SEED", byDef: "-1",
			help: "seed of the random numbers; -1: a random one", set: setSeed},
		{flag: "--samplers SAMPLERS", byDef: defaultSamplers,
			help: "which samplers are applied, in which order; also infill and adaptive_p", set: setSamplers},
		{flag: "--sampler-seq, --sampling-seq SEQUENCE", byDef: "edskypmxt",
			help: "the same, in letters; also i and a; a model that recommends samplers has its way",
			set:  setSamplerLetters},
		{flag: "--ignore-eos", help: "never generate a token that ends the text",
			set: boolean(func(r *Run) *bool { return &r.IgnoreEOS })},
		{flag: "--temp, --temperature N", env: "LLAMA_ARG_TEMPERATURE", byDef: "0.80",
			help: "temperature; 0: always the likeliest token", set: setTemperature},
		{flag: "--top-k N", env: "LLAMA_ARG_TOP_K", byDef: "40", help: "keep the N likeliest tokens; 0: all",
			set: integer(func(r *Run) *int { return &r.TopK }, math.MinInt32, "a whole number")},
		{flag: "--top-p N", env: "LLAMA_ARG_TOP_P", byDef: "0.95",
			help: "keep the likeliest tokens that together have this probability; 1: all",
			set:  number32(func(r *Run) *float32 { return &r.TopP }, 0, 1)},
		{flag: "--min-p N", env: "LLAMA_ARG_MIN_P", byDef: "0.05",
			help: "keep tokens with at least this share of the likeliest one's probability; 0: all",
			set:  number32(func(r *Run) *float32 { return &r.MinP }, 0, 1)},
		{flag: "--top-nsigma, --top-n-sigma N", key: "top-n-sigma", byDef: "-1.00",
			help: "keep tokens within N standard deviations of the highest logit; -1: all",
			set:  anyNumber(func(r *Run) *float32 { return &r.TopNSigma })},
		{flag: "--xtc-probability N", byDef: "0.00", help: "how often XTC removes likely tokens; 0: never",
			set: number32(func(r *Run) *float32 { return &r.XTCProbability }, 0, 1)},
		{flag: "--xtc-threshold N", byDef: "0.10",
			help: "probability from which it removes them, all but the least likely; above 0.5: none",
			set:  number32(func(r *Run) *float32 { return &r.XTCThreshold }, 0, 1)},
		{flag: "--typical, --typical-p N", byDef: "1.00",
			help: "keep the tokens of most typical information that together have this probability; 1: all",
			set:  number32(func(r *Run) *float32 { return &r.TypicalP }, 0, 1)},
	}
}

// MaxLastTokens bounds how many last tokens a sampler looks at: llama.cpp takes memory for all of them, in each
// sequence.
const MaxLastTokens = 1 << 21

// lastTokens sets how many last tokens a sampler looks at.
func lastTokens(field func(*Run) *int) func(*Run, string) error {
	want := fmt.Sprintf("0 for none, or a number of tokens, at most %d", MaxLastTokens)
	set := integer(field, 0, want)
	return func(r *Run, s string) error {
		if n, err := strconv.Atoi(s); err == nil && n > MaxLastTokens {
			return errors.New("give " + want)
		}
		return set(r, s)
	}
}

// penaltyOptions are those of the samplers that look back at the text.
func penaltyOptions() []llamaOption {
	return []llamaOption{
		{flag: "--repeat-last-n N", byDef: "64", help: "how many last tokens the penalties look at; 0: none",
			set: lastTokens(func(r *Run) *int { return &r.RepeatLastN })},
		{flag: "--repeat-penalty N", env: "LLAMA_ARG_REPEAT_PENALTY", byDef: "1.00",
			help: "penalty of repeated tokens, above 0; 1: none",
			set: number32(func(r *Run) *float32 { return &r.RepeatPenalty }, math.SmallestNonzeroFloat32,
				math.Inf(1))},
		{flag: "--presence-penalty N", env: "LLAMA_ARG_PRESENCE_PENALTY", byDef: "0.00",
			help: "penalty of tokens that occurred; 0: none",
			set:  anyNumber(func(r *Run) *float32 { return &r.PresencePenalty })},
		{flag: "--frequency-penalty N", env: "LLAMA_ARG_FREQUENCY_PENALTY", byDef: "0.00",
			help: "penalty for each time that a token occurred; 0: none",
			set:  anyNumber(func(r *Run) *float32 { return &r.FrequencyPenalty })},
		{flag: "--dry-multiplier N", byDef: "0.00",
			help: "how much DRY penalises what continues a repetition; 0: not at all",
			set:  number32(func(r *Run) *float32 { return &r.DryMultiplier }, 0, math.Inf(1))},
		{flag: "--dry-base N", byDef: "1.75", help: "by how much that grows with each repeated token",
			set: number32(func(r *Run) *float32 { return &r.DryBase }, 1, math.Inf(1))},
		{flag: "--dry-allowed-length N", byDef: "2", help: "tokens that may be repeated freely",
			set: integer(func(r *Run) *int { return &r.DryAllowedLength }, 0, "a number of tokens, at least 0")},
		{flag: "--dry-penalty-last-n N", byDef: "64", help: "how many last tokens DRY looks at; 0: none",
			set: lastTokens(func(r *Run) *int { return &r.DryLastN })},
		{flag: "--dry-sequence-breaker STRING",
			help: `text that ends a repetition, in place of \n : " and *; may be given several times; none: no such ` +
				`text`,
			set: addDryBreaker},
	}
}

// choiceOptions are those of the temperature's range, of the samplers that choose, and of what is allowed at all.
func choiceOptions() []llamaOption {
	return []llamaOption{
		{flag: "--adaptive-target N", byDef: "-1.00",
			help: "adaptive_p prefers tokens near this probability; negative: none",
			set:  number32(func(r *Run) *float32 { return &r.AdaptiveTarget }, math.Inf(-1), 1)},
		{flag: "--adaptive-decay N", byDef: "0.90", help: "how slowly adaptive_p forgets, 0 to 0.99",
			set: number32(func(r *Run) *float32 { return &r.AdaptiveDecay }, 0, float64(float32(0.99)))},
		{flag: "--dynatemp-range N", byDef: "0.00",
			help: "let the temperature follow the entropy, this far up and down; 0: no",
			set:  number32(func(r *Run) *float32 { return &r.DynatempRange }, 0, math.Inf(1))},
		{flag: "--dynatemp-exp N", byDef: "1.00", help: "how steeply it does",
			set: anyNumber(func(r *Run) *float32 { return &r.DynatempExponent })},
		{flag: "--mirostat N", byDef: "0",
			help: "keep the surprise even by Mirostat 1 or 2, in place of the samplers; 0: no", set: setMirostat},
		{flag: "--mirostat-lr N", byDef: "0.10", help: "Mirostat's learning rate, eta",
			set: anyNumber(func(r *Run) *float32 { return &r.MirostatEta })},
		{flag: "--mirostat-ent N", byDef: "5.00", help: "Mirostat's target, tau",
			set: anyNumber(func(r *Run) *float32 { return &r.MirostatTau })},
		{flag: "-l, --logit-bias TOKEN_ID(+/-)BIAS",
			help: "make a token likelier or less likely, such as 15043+1 or 15043-inf; may be given several times",
			set:  addLogitBias},
		{flag: "--grammar GRAMMAR", help: "grammar in GBNF that the text must follow", set: setGrammar},
		{flag: "--grammar-file FNAME", key: "grammar", help: "file with such a grammar", set: setGrammarFile},
		{flag: "-j, --json-schema, -jf, --json-schema-file SCHEMA",
			help: "not here: llama.cpp's library has no JSON schemas; 'llamatap llama-completion' and 'llamatap " +
				"llama-cli' do",
			set: refuseJSONSchema},
		{flag: "-bs, --backend-sampling", env: "LLAMA_ARG_BACKEND_SAMPLING",
			help: "sample on the devices, where they can", set: boolean(func(r *Run) *bool { return &r.OnBackend })},
	}
}

func setSeed(r *Run, s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < -1 || n > math.MaxUint32 {
		return fmt.Errorf("give a number from 0 to %d, or -1 for a random seed", uint32(math.MaxUint32))
	}
	r.Seed = uint32(n)
	return nil
}

func setSamplers(r *Run, s string) error {
	names := []string{}
	for word := range strings.SplitSeq(s, ";") {
		name, ok := ParseSampler(word)
		switch {
		case ok:
			names = append(names, name)
		case s != "": // an empty list is one without samplers
			return fmt.Errorf("there is no sampler %q: take some of %s, with ; between them", word,
				strings.Join(SamplerNames(), ", "))
		}
	}
	r.Samplers = names
	return nil
}

func setSamplerLetters(r *Run, s string) error {
	names := []string{}
	for _, letter := range s {
		name, ok := samplerLetters[letter]
		if !ok {
			return fmt.Errorf("there is no sampler %q: take some of the letters edskypmxt, i and a", letter)
		}
		names = append(names, name)
	}
	r.Samplers = names
	return nil
}

// setTemperature takes a negative temperature for 0, as llama.cpp does.
func setTemperature(r *Run, s string) error {
	err := anyNumber(func(r *Run) *float32 { return &r.Temperature })(r, s)
	r.Temperature = max(r.Temperature, 0)
	return err
}

func addDryBreaker(r *Run, s string) error {
	if s == "none" || !r.given["dry-sequence-breaker"] {
		r.DryBreakers = []string{}
	}
	if s != "none" {
		r.DryBreakers = append(r.DryBreakers, s)
	}
	return nil
}

func setMirostat(r *Run, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 2 {
		return errors.New("take 1 or 2 for a version of Mirostat, or 0 for none")
	}
	r.Mirostat = n
	return nil
}

func addLogitBias(r *Run, s string) error {
	wrong := errors.New("give a token id, a sign and a number, such as 15043+1, 15043-0.5 or 15043-inf")
	i := strings.IndexAny(s, "+-")
	if i < 0 {
		return wrong
	}
	token, err := strconv.ParseUint(strings.TrimSpace(s[:i]), 10, 31)
	bias, biasErr := strconv.ParseFloat(strings.TrimSpace(s[i+1:]), 32)
	if err != nil || biasErr != nil || math.IsNaN(bias) {
		return wrong
	}
	if s[i] == '-' {
		bias = -bias
	}
	r.LogitBias = append(r.LogitBias, LogitBias{Token: int32(token), Bias: float32(bias)})
	return nil
}

func setGrammar(r *Run, s string) error {
	r.Grammar, r.GrammarFile = s, ""
	return nil
}

func setGrammarFile(r *Run, s string) error {
	if s == "" {
		return errors.New("no file name: give a file with a grammar in GBNF")
	}
	r.Grammar, r.GrammarFile = "", s
	return nil
}

func refuseJSONSchema(*Run, string) error {
	return errors.New(
		"llama.cpp's library cannot turn a JSON schema into a grammar: use 'llamatap llama-cli', or give --grammar")
}
