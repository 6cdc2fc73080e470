package config

import (
	"fmt"
	"slices"
	"strings"
)

// Purpose is why somebody captures; with a model's architecture it picks a preset.
type Purpose string

// The purposes.
const (
	Interpretability    Purpose = "interpretability"
	Debugging           Purpose = "debugging"
	PerformanceAnalysis Purpose = "performance_analysis"
	FullCapture         Purpose = "full_capture"
)

var purposes = []string{string(Interpretability), string(Debugging), string(PerformanceAnalysis), string(FullCapture)}

// parsePurpose reads the name of a purpose.
func parsePurpose(s string) (Purpose, error) {
	if slices.Contains(purposes, s) {
		return Purpose(s), nil
	}
	return "", fmt.Errorf("unknown purpose %q: use one of %s", s, strings.Join(purposes, ", "))
}

// families maps the beginning of a GGUF general.architecture to a family; the first match counts.
var families = []struct{ prefix, family string }{
	{"gptneox", "gpt"}, {"gpt", "gpt"}, {"starcoder", "gpt"},
	{"llama", "llama"}, {"mixtral", "llama"}, {"mistral", "llama"}, {"codellama", "llama"},
	{"qwen", "qwen"}, {"qwq", "qwen"},
	{"gemma", "gemma"}, {"phi", "phi"}, {"deepseek", "deepseek"}, {"command-r", "command-r"}, {"cohere", "command-r"},
	{"bert", "bert"}, {"nomic-bert", "bert"}, {"jina-bert", "bert"}, {"modern-bert", "bert"},
	{"mamba", "mamba"}, {"falcon-mamba", "mamba"}, {"rwkv", "rwkv"}, {"arwkv", "rwkv"},
}

// Family normalises a GGUF general.architecture: qwen2, qwen3 and qwen3moe are qwen, gpt2 and gptneox are gpt. An
// architecture that is not in the table is its own family; an absent one is "unknown".
func Family(arch string) string {
	arch = strings.ToLower(strings.TrimSpace(arch))
	for _, f := range families {
		if strings.HasPrefix(arch, f.prefix) {
			return f.family
		}
	}
	if arch == "" {
		return "unknown"
	}
	return arch
}

// suggest picks the settings for a purpose on a model of the given GGUF general.architecture ("" if not known), and
// says why in one sentence. It is STRAP-LLM's create_optimized_config with the family normalised, so that qwen3
// counts as qwen, and without attention_analysis for a model that has no attention.
func suggest(arch string, purpose Purpose) (Preset, string) {
	family := Family(arch)
	pick := func(name, why string) (Preset, string) {
		p, _ := parsePreset(name)
		return p, fmt.Sprintf("%s on family %s: %s", purpose, family, why)
	}
	switch purpose {
	case Interpretability:
		if family == "mamba" || family == "rwkv" {
			return pick(defaultPreset, "balanced, because it has no attention to analyse")
		}
		return pick("attention_analysis", "attention_analysis")
	case Debugging:
		return pick("fast_capture", "fast_capture")
	case PerformanceAnalysis:
		if !slices.Contains([]string{"gpt", "llama", "qwen"}, family) {
			return pick(defaultPreset, "balanced")
		}
		p, why := pick(defaultPreset, "balanced with q-fse and a 16 GB ceiling")
		p.Codec, p.MemoryCeiling = "q-fse", 16*GB
		return p, why
	}
	return pick(defaultPreset, "balanced")
}
