package config

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Adapters are what is added to a model: LoRA adapters and control vectors.
type Adapters struct {
	Loras          []ScaledFile
	ControlVectors []ScaledFile
	ControlFirst   int // first layer that the control vectors act on, counted from 1 as llama.cpp does; 0: the first
	ControlLast    int // the last one; 0: the last
}

// ScaledFile is a file and the factor that its effect is multiplied with.
type ScaledFile struct {
	Path  string
	Scale float32
}

// Rope is how rotary positions are computed. A number that is 0, or negative where its default is -1, is what the
// model says.
type Rope struct {
	RopeScaling     string // none, linear, yarn; "": as the model says
	RopeFreqBase    float32
	RopeFreqScale   float32
	YarnOrigContext int
	YarnExtFactor   float32
	YarnAttnFactor  float32
	YarnBetaSlow    float32
	YarnBetaFast    float32
}

func defaultRope() Rope {
	return Rope{YarnExtFactor: -1, YarnAttnFactor: -1, YarnBetaSlow: -1, YarnBetaFast: -1}
}

var ropeScalings = []string{"none", "linear", "yarn"}

func ropeOptions() []llamaOption {
	yarn := func(flag, env, help string, field func(*Run) *float32) llamaOption {
		return llamaOption{flag: flag, env: env, byDef: "-1.00", help: help, set: anyNumber(field)}
	}
	return []llamaOption{
		{section: "positions beyond what the model was trained for", flag: "--rope-scaling none|linear|yarn",
			env: "LLAMA_ARG_ROPE_SCALING_TYPE", help: "how RoPE frequencies are scaled; without it as the model says",
			set: word(func(r *Run) *string { return &r.RopeScaling }, ropeScalings)},
		{flag: "--rope-scale N", env: "LLAMA_ARG_ROPE_SCALE", help: "stretch the context by this factor",
			set: setRopeScale},
		{flag: "--rope-freq-base N", env: "LLAMA_ARG_ROPE_FREQ_BASE", byDef: "0",
			help: "base of the frequencies; 0: the model's",
			set:  number32(func(r *Run) *float32 { return &r.RopeFreqBase }, 0, math.Inf(1))},
		{flag: "--rope-freq-scale N", env: "LLAMA_ARG_ROPE_FREQ_SCALE", byDef: "0",
			help: "factor of the frequencies, 1/N of --rope-scale N; 0: the model's",
			set:  number32(func(r *Run) *float32 { return &r.RopeFreqScale }, 0, math.Inf(1))},
		{flag: "--yarn-orig-ctx N", env: "LLAMA_ARG_YARN_ORIG_CTX", byDef: "0",
			help: "YaRN: tokens that the model was trained for; 0: as it says",
			set: integer(func(r *Run) *int { return &r.YarnOrigContext }, 0,
				"0 for the model's own, or a number of tokens")},
		yarn("--yarn-ext-factor N", "LLAMA_ARG_YARN_EXT_FACTOR", "YaRN: share of extrapolation; 0: all interpolated",
			func(r *Run) *float32 { return &r.YarnExtFactor }),
		yarn("--yarn-attn-factor N", "LLAMA_ARG_YARN_ATTN_FACTOR", "YaRN: factor of attention",
			func(r *Run) *float32 { return &r.YarnAttnFactor }),
		yarn("--yarn-beta-slow N", "LLAMA_ARG_YARN_BETA_SLOW", "YaRN: high correction dimension, alpha",
			func(r *Run) *float32 { return &r.YarnBetaSlow }),
		yarn("--yarn-beta-fast N", "LLAMA_ARG_YARN_BETA_FAST", "YaRN: low correction dimension, beta",
			func(r *Run) *float32 { return &r.YarnBetaFast }),
	}
}

func adapterOptions() []llamaOption {
	loras := func(r *Run) *[]ScaledFile { return &r.Loras }
	vectors := func(r *Run) *[]ScaledFile { return &r.ControlVectors }
	return []llamaOption{
		{section: "adapters", flag: "--lora FNAME,..", help: "GGUF files of LoRA adapters; may be given several times",
			set: addFiles(loras)},
		{flag: "--lora-scaled FNAME:SCALE,..", help: "LoRA adapters, each with a factor of its effect",
			set: addScaledFiles(loras)},
		{flag: "--control-vector FNAME,..",
			help: "GGUF files of control vectors, added to the residual stream; may be given several times",
			set:  addFiles(vectors)},
		{flag: "--control-vector-scaled FNAME:SCALE,..", help: "control vectors, each with a factor of its effect",
			set: addScaledFiles(vectors)},
		{flag: "--control-vector-layer-range START END", pair: true,
			help: "layers that the control vectors act on, both included and counted from 1; without it all",
			set:  setControlRange},
	}
}

// setRopeScale sets what --rope-freq-scale sets.
func setRopeScale(r *Run, s string) error {
	var n float32
	err := number32(func(*Run) *float32 { return &n }, math.SmallestNonzeroFloat32, math.Inf(1))(r, s)
	if err == nil {
		r.RopeFreqScale = 1 / n
	}
	return err
}

// fields cuts a list at its commas; a part that holds one is in double quotes.
func fields(list string) ([]string, error) {
	reader := csv.NewReader(strings.NewReader(list))
	reader.LazyQuotes = true
	parts, err := reader.Read()
	if err != nil {
		return nil, errors.New("no file name: give one, or several with commas between them")
	}
	for _, part := range parts {
		if part == "" {
			return nil, errors.New("a file name is empty: give one, or several with commas between them")
		}
	}
	return parts, nil
}

func addFiles(list func(*Run) *[]ScaledFile) func(*Run, string) error {
	return func(r *Run, s string) error {
		paths, err := fields(s)
		for _, path := range paths {
			*list(r) = append(*list(r), ScaledFile{Path: path, Scale: 1})
		}
		return err
	}
}

func addScaledFiles(list func(*Run) *[]ScaledFile) func(*Run, string) error {
	return func(r *Run, s string) error {
		parts, err := fields(s)
		for _, part := range parts {
			i := strings.LastIndexByte(part, ':')
			scale, scaleErr := strconv.ParseFloat(part[i+1:], 32)
			if i < 1 || scaleErr != nil || math.IsNaN(scale) || math.IsInf(scale, 0) {
				return fmt.Errorf("%q has no scale: give FNAME:SCALE, such as adapter.gguf:0.5", part)
			}
			*list(r) = append(*list(r), ScaledFile{Path: part[:i], Scale: float32(scale)})
		}
		return err
	}
}

// setControlRange takes "START END".
func setControlRange(r *Run, s string) error {
	first, last, _ := strings.Cut(s, " ")
	start, startErr := strconv.ParseInt(first, 10, 32)
	end, endErr := strconv.ParseInt(last, 10, 32)
	if startErr != nil || endErr != nil || start < 0 || end < 0 || end > 0 && start > end {
		return errors.New(
			"give the first and the last layer, such as --control-vector-layer-range 3 10; layers are counted from 1")
	}
	r.ControlFirst, r.ControlLast = int(start), int(end)
	return nil
}
