package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
)

// Run is everything that llamatap run takes from llama.cpp's own vocabulary: the flags of llama-completion, with
// its names, defaults and environment variables. What records is in Tap.
//
// NewRun gives the defaults; Define and ResolveEnv fill it, Validate checks it. Its zero value is not valid.
type Run struct {
	Model      string // GGUF file; "" is the embedded model
	Prompt     string // as given; escapes are not processed yet
	PromptFile string // file with the prompt, "-" for stdin
	Escape     bool   // process \n, \t, \", \\, \xHH in the prompt

	ReversePrompts []string // texts that end generation; escapes are not processed yet
	Special        bool     // show control tokens in the text
	PromptCache    string   // file with the state after a prompt; "": none
	PromptCacheAll bool     // save the state at the end too
	PromptCacheRO  bool     // do not write the file
	ContextShift   bool     // continue when the context is full
	Keep           int      // tokens of the prompt that stay then; -1: all

	Predict    int // tokens to generate; -1: no limit, -2: until the context is full
	Context    int // tokens; 0: what the model was trained for
	Batch      int // most tokens per decode
	MicroBatch int // most tokens per graph

	Threads      int // for single tokens; 0: one per core
	BatchThreads int // for batches; 0: as Threads

	GPULayers      int      // layers on devices; -1: all
	Devices        []string // names; nil: all there are; empty, not nil: none
	RPC            []string // host:port of RPC servers
	BLAS           bool     // matrices of many rows are multiplied by a BLAS library
	CacheTypeK     string
	CacheTypeV     string
	FlashAttention string // on, off, auto
	LoadMode       string // auto, none, mmap, mlock, mmap+mlock, dio
	Repack         bool   // the CPU may hold weights in an order of its own

	Rope
	Adapters
	Sampling
	Prompts
	Embeddings

	Warmup  bool // decode once before the run, as llama.cpp does
	Verbose bool // show llama.cpp's log

	given map[string]bool // names of the settings that a flag or the environment set
}

// NewRun returns llama.cpp's defaults.
func NewRun() *Run {
	return &Run{
		Escape: true, Predict: -1, Batch: 2048, MicroBatch: 512, GPULayers: -1,
		CacheTypeK: "f16", CacheTypeV: "f16", FlashAttention: "auto", LoadMode: "auto", Repack: true, Warmup: true,
		Rope: defaultRope(), Sampling: defaultSampling(),
		Embeddings: Embeddings{EmbdNormalize: 2, EmbdSeparator: "\n", ClsSeparator: "\t"},
	}
}

// ResolveEnv takes every setting that no flag gave from llama.cpp's environment variables, such as
// LLAMA_ARG_CTX_SIZE. lookup is os.LookupEnv. It comes after the flags were parsed.
func (r *Run) ResolveEnv(lookup func(string) (string, bool)) error {
	for i := range llamaOptions {
		o := &llamaOptions[i]
		if o.env == "" || r.given[o.key] {
			continue
		}
		value, ok := lookup(o.env)
		if !ok {
			continue
		}
		if err := r.set(o, value); err != nil {
			return fmt.Errorf("environment variable %s=%q: %w", o.env, value, err)
		}
	}
	return nil
}

// Given reports whether a flag or the environment gave a setting, by its first long name, such as "top-k".
func (r *Run) Given(name string) bool { return r.given[name] }

func (r *Run) set(o *llamaOption, value string) error {
	if err := o.set(r, value); err != nil {
		return err
	}
	if r.given == nil {
		r.given = make(map[string]bool)
	}
	r.given[o.key] = true
	return nil
}

// Validate checks what the flags say together. The error is one line with cause and remedy.
func (r *Run) Validate() error {
	if err := r.validatePrompts(); err != nil {
		return err
	}
	if err := r.validateEmbeddings(); err != nil {
		return err
	}
	switch {
	case !r.given["prompt"] && !r.given["file"] && !r.given["prompts"]:
		return errors.New("no prompt: give -p TEXT, -f FILE, or -f - to read it from stdin")
	case r.given["prompt"] && r.given["file"]:
		return errors.New("-p and -f both give the prompt: leave one out")
	case r.PromptCache == "" && (r.PromptCacheAll || r.PromptCacheRO):
		return errors.New(
			"--prompt-cache-all and --prompt-cache-ro say nothing without a file: give --prompt-cache FNAME")
	case r.given["ubatch-size"] && r.given["batch-size"] && r.MicroBatch > r.Batch:
		return fmt.Errorf("-ub %d is larger than -b %d: a micro-batch is a part of a batch; raise -b or lower -ub",
			r.MicroBatch, r.Batch)
	case r.FlashAttention == "off" && slices.Contains(quantisedCacheTypes, r.CacheTypeV):
		return fmt.Errorf("-ctv %s needs flash attention: leave -fa off out, or take -ctv f16", r.CacheTypeV)
	case r.Devices != nil && len(r.Devices) == 0 && r.given["gpu-layers"] && r.GPULayers > 0:
		return fmt.Errorf("-dev none and -ngl %d contradict each other: leave one out", r.GPULayers)
	case r.Devices != nil && len(r.Devices) == 0 && len(r.RPC) > 0:
		return errors.New("-dev none and --rpc contradict each other: leave one out")
	}
	return nil
}

// validateEmbeddings checks the settings of embeddings against those of text.
func (r *Run) validateEmbeddings() error {
	if !r.Embeddings.Embeddings {
		for _, key := range []string{"attention", "embd-normalize", "embd-output-format", "embd-separator",
			"cls-separator"} {
			if r.given[key] {
				return fmt.Errorf("--%s is for embeddings: give --embeddings too, or leave it out", key)
			}
		}
		return nil
	}
	switch {
	case r.PromptsFile != "":
		return errors.New("--embeddings takes its texts with -p or -f: leave it or --prompts out")
	case r.PromptCache != "" || r.ContextShift || r.OnBackend:
		return errors.New(
			"--prompt-cache, --context-shift and --backend-sampling are for text: leave them or --embeddings out")
	}
	return nil
}

// validatePrompts checks the settings of many prompts against those of one.
func (r *Run) validatePrompts() error {
	if r.PromptsFile == "" {
		for _, key := range []string{"results", "parallel", "logprobs", "all-logits", "all-rows", "stop-on-error"} {
			if r.given[key] {
				return fmt.Errorf("--%s is for many prompts: give them with --prompts FNAME, or leave it out", key)
			}
		}
		return nil
	}
	switch {
	case r.given["prompt"] || r.given["file"]:
		return errors.New("--prompts gives the prompts: leave -p and -f out")
	case r.PromptCache != "":
		return errors.New("--prompt-cache is for one prompt: leave it or --prompts out")
	case r.ContextShift:
		return errors.New("--context-shift is for one prompt: leave it or --prompts out, and raise -c")
	case r.OnBackend:
		return errors.New("--backend-sampling is for one prompt: leave it or --prompts out")
	case r.AllRows && r.Predict != 0:
		return errors.New("--all-rows computes no logits, and text is chosen by them: give -n 0 too, or leave it out")
	case r.AllRows && (r.AllLogits || r.TopLogprobs > 0):
		return errors.New("--all-rows computes no logits: leave it out, or --all-logits and --logprobs")
	case r.Parallel > 256:
		return fmt.Errorf("-np %d: llama.cpp decodes at most 256 sequences at a time", r.Parallel)
	case r.Parallel > r.Batch:
		return fmt.Errorf("-np %d does not fit into a batch of %d tokens: lower it, or raise -b", r.Parallel, r.Batch)
	case r.Parallel > r.Context && r.Context > 0:
		return fmt.Errorf("-np %d leaves less than a token of a context of %d to each: lower it, or raise -c",
			r.Parallel, r.Context)
	}
	return nil
}

// Differences lists where two runs have other settings, a sentence each; what changes nothing of what a model
// computes is left out.
func (r *Run) Differences(o *Run) []string {
	return differences("", reflect.ValueOf(*r), reflect.ValueOf(*o))
}

// Define adds the flags of r, under every name that llama.cpp gives them. Values go into r as they are parsed.
func (r *Run) Define(f *cli.Flags) {
	group := ""
	for i := range llamaOptions {
		o := &llamaOptions[i]
		if o.section != "" {
			group = strings.ToUpper(o.section[:1]) + o.section[1:]
		}
		flag := f.Add(o.flag, func(value string) error { return r.set(o, value) }, o.help)
		flag.Pair, flag.Default, flag.Env, flag.Group, flag.More = o.pair, o.byDef, o.env, group, !usual[o.key]
		if o.off != "" {
			flag.Off = strings.Split(o.off, ", ")
		}
		if !flag.More {
			flag.Group = "Generation"
		}
	}
}

// harmless are fields that do not change what a model computes.
var harmless = map[string]bool{"Verbose": true, "ResultsFile": true}

func differences(prefix string, a, b reflect.Value) []string {
	var found []string
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || harmless[f.Name] {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			found = append(found, differences(prefix+f.Name+".", a.Field(i), b.Field(i))...)
			continue
		}
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if !reflect.DeepEqual(x, y) {
			found = append(found, fmt.Sprintf("%s%s was %s and is %s", prefix, f.Name, clip(x), clip(y)))
		}
	}
	return found
}

// clip is a value short enough for a line.
func clip(v any) string {
	text := fmt.Sprintf("%+v", v)
	if s, ok := v.(string); ok {
		text = fmt.Sprintf("%q", s)
	}
	if r := []rune(text); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return text
}

// usual are the settings that --help lists; --help-all lists the others, too.
var usual = map[string]bool{
	"model": true, "prompt": true, "file": true, "predict": true, "ctx-size": true, "threads": true, "gpu-layers": true,
	"seed": true, "temp": true,
	"prompts": true, "results": true,
}
