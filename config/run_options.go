package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// llamaOption is one row of the table of the flags that llama.cpp has too.
type llamaOption struct {
	section string // heading of help that begins here
	flag    string // names and the form of the value, as help shows them: "-c, --ctx-size N"; see cli.Flags.Add
	off     string // flags that turn a switch off
	key     string // its name in Run.Given; "": its first name with two dashes
	env     string // llama.cpp's environment variable
	byDef   string // the default, as a user would write it
	help    string
	set     func(*Run, string) error
	own     bool // llama-completion has no such flag
	pair    bool // it takes two values, which set gets with a space between them
}

var firstLongName = regexp.MustCompile(`--([a-z-]+)`)

// llamaOptions is the table, in the order of help. Names, variables and defaults are llama-completion's (0.7.0),
// but for --no-mmap and --mlock, which older versions had.
var llamaOptions = func() []llamaOption {
	options := slices.Concat(inputOptions(), continueOptions(), promptsOptions(), embeddingsOptions(),
		computeOptions(), ropeOptions(), adapterOptions(), samplingOptions(), otherOptions())
	for i := range options {
		if o := &options[i]; o.key == "" {
			o.key = firstLongName.FindStringSubmatch(o.flag)[1]
		}
	}
	return options
}()

func inputOptions() []llamaOption {
	return []llamaOption{
		{section: "input and length", flag: "-m, --model FNAME", env: "LLAMA_ARG_MODEL", byDef: "the embedded model",
			help: "GGUF file of the model",
			set: file(func(r *Run) *string { return &r.Model },
				"a GGUF file, or leave the flag out for the embedded model")},
		{flag: "-p, --prompt PROMPT", help: "text to continue",
			set: func(r *Run, s string) error { r.Prompt = s; return nil }},
		{flag: "-f, --file FNAME", help: "file with the text to continue, without its last newline; - is stdin",
			set: file(func(r *Run) *string { return &r.PromptFile }, "a file, or - for stdin")},
		{flag: "-e, --escape", off: "--no-escape", byDef: "on",
			help: `process escapes in the prompt: \n \r \t \' \" \\ \xHH`,
			set:  boolean(func(r *Run) *bool { return &r.Escape })},
		{flag: "-n, --predict, --n-predict N", env: "LLAMA_ARG_N_PREDICT", byDef: "-1",
			help: "tokens to generate; -1: until the model ends the text, -2: until the context is full, 0: only " +
				"decode the prompt",
			set: integer(func(r *Run) *int { return &r.Predict }, -2,
				"-1 for no limit, -2 for until the context is full, or a number of tokens")},
		{flag: "-c, --ctx-size N", env: "LLAMA_ARG_CTX_SIZE", byDef: "0",
			help: "length of the context in tokens; 0: what the model was trained for",
			set: integer(func(r *Run) *int { return &r.Context }, 0,
				"0 for the model's own length, or a number of tokens")},
	}
}

func continueOptions() []llamaOption {
	return []llamaOption{
		{flag: "-r, --reverse-prompt PROMPT",
			help: "text that ends generation where it comes up; may be given several times", set: addReversePrompt},
		{flag: "-sp, --special", help: "show control tokens in the text",
			set: boolean(func(r *Run) *bool { return &r.Special })},
		{flag: "--context-shift", off: "--no-context-shift", env: "LLAMA_ARG_CONTEXT_SHIFT", byDef: "off",
			help: "where the context is full, forget half of it and continue",
			set:  boolean(func(r *Run) *bool { return &r.ContextShift })},
		{flag: "--keep N", byDef: "0", help: "tokens of the prompt that are not forgotten then; -1: all",
			set: integer(func(r *Run) *int { return &r.Keep }, -1, "-1 for the whole prompt, or a number of tokens")},
		{flag: "--prompt-cache FNAME", help: "file that keeps the state after the prompt, in llama.cpp's format",
			set: file(func(r *Run) *string { return &r.PromptCache }, "a file, which need not exist yet")},
		{flag: "--prompt-cache-all", help: "keep what is generated in it too",
			set: boolean(func(r *Run) *bool { return &r.PromptCacheAll })},
		{flag: "--prompt-cache-ro", help: "use it, but do not write it",
			set: boolean(func(r *Run) *bool { return &r.PromptCacheRO })},
	}
}

func addReversePrompt(r *Run, s string) error {
	if s == "" {
		return errors.New("no text: give one that ends generation, or leave the flag out")
	}
	r.ReversePrompts = append(r.ReversePrompts, s)
	return nil
}

func computeOptions() []llamaOption {
	return []llamaOption{
		{section: "computing", flag: "-b, --batch-size N", env: "LLAMA_ARG_BATCH", byDef: "2048",
			help: "most tokens per call of llama_decode",
			set:  integer(func(r *Run) *int { return &r.Batch }, 1, "a number of tokens, at least 1")},
		{flag: "-ub, --ubatch-size N", env: "LLAMA_ARG_UBATCH", byDef: "512", help: "most tokens per graph",
			set: integer(func(r *Run) *int { return &r.MicroBatch }, 1, "a number of tokens, at least 1")},
		{flag: "-t, --threads N", env: "LLAMA_ARG_THREADS", byDef: "one per core", help: "threads that generate",
			set: threads(func(r *Run) *int { return &r.Threads })},
		{flag: "-tb, --threads-batch N", byDef: "as --threads", help: "threads that decode the prompt",
			set: threads(func(r *Run) *int { return &r.BatchThreads })},
		{flag: "-ngl, --gpu-layers, --n-gpu-layers N", env: "LLAMA_ARG_N_GPU_LAYERS", byDef: "auto",
			help: "layers that devices hold: a number, auto or all", set: setGPULayers},
		{flag: "-dev, --device DEV1,DEV2,..", env: "LLAMA_ARG_DEVICE", byDef: "all",
			help: "devices to use; none: the CPU only", set: setDevices},
		{flag: "--rpc SERVERS", env: "LLAMA_ARG_RPC",
			help: "RPC servers whose devices are used too: host:port,host:port", set: setRPC},
		{flag: "--blas", own: true,
			help: "multiply matrices of 32 rows and more by ggml's BLAS backend; llamatap doctor measures where it " +
				"is faster",
			set: boolean(func(r *Run) *bool { return &r.BLAS })},
		{flag: "-ctk, --cache-type-k TYPE", env: "LLAMA_ARG_CACHE_TYPE_K", byDef: "f16",
			help: "type of the K cache: " + strings.Join(allCacheTypes, ", "),
			set:  word(func(r *Run) *string { return &r.CacheTypeK }, allCacheTypes)},
		{flag: "-ctv, --cache-type-v TYPE", env: "LLAMA_ARG_CACHE_TYPE_V", byDef: "f16",
			help: "type of the V cache, the same ones",
			set:  word(func(r *Run) *string { return &r.CacheTypeV }, allCacheTypes)},
		{flag: "-fa, --flash-attn on|off|auto", env: "LLAMA_ARG_FLASH_ATTN", byDef: "auto",
			help: "attention as one fused operation", set: setFlashAttention},
		{flag: "-lm, --load-mode MODE", env: "LLAMA_ARG_LOAD_MODE", byDef: "auto",
			help: "how weights come into memory: " + strings.Join(loadModes, ", "), set: setLoadMode},
		{flag: "--no-mmap", key: "load-mode", help: "the same as --load-mode none", set: loadSwitch("none")},
		{flag: "--mlock", key: "load-mode", help: "the same as --load-mode mmap+mlock", set: loadSwitch("mmap+mlock")},
		{flag: "--repack", off: "-nr, --no-repack", env: "LLAMA_ARG_REPACK", byDef: "on",
			help: "let the CPU hold weights in an order of its own, which is faster (CPU_REPACK, AMX)",
			set:  boolean(func(r *Run) *bool { return &r.Repack })},
	}
}

func otherOptions() []llamaOption {
	return []llamaOption{
		{section: "other", flag: "--warmup", off: "--no-warmup", byDef: "on",
			help: "decode an empty text once before the run", set: boolean(func(r *Run) *bool { return &r.Warmup })},
		{flag: "-v, --verbose, --log-verbose", help: "show llama.cpp's own log on stderr",
			set: boolean(func(r *Run) *bool { return &r.Verbose })},
	}
}

var (
	quantisedCacheTypes = []string{"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}
	allCacheTypes       = append([]string{"f32", "f16", "bf16"}, quantisedCacheTypes...)
	loadModes           = []string{"auto", "none", "mmap", "mlock", "mmap+mlock", "dio"}
)

func boolean(field func(*Run) *bool) func(*Run, string) error {
	return func(r *Run, s string) (err error) {
		*field(r), err = strconv.ParseBool(s)
		return err
	}
}

func integer(field func(*Run) *int, lowest int, want string) func(*Run, string) error {
	return func(r *Run, s string) error {
		n, err := strconv.ParseInt(s, 10, 32) // llama.cpp counts in 32 bits
		if errors.Is(err, strconv.ErrRange) && n > 0 {
			return fmt.Errorf("give at most %d", math.MaxInt32)
		}
		if err != nil || int(n) < lowest {
			return fmt.Errorf("give %s", want)
		}
		*field(r) = int(n)
		return nil
	}
}

// MaxThreads is how many threads ggml computes with at most.
const MaxThreads = 512

// threads accepts llama.cpp's words for one thread per core, 0 and negative numbers.
func threads(field func(*Run) *int) func(*Run, string) error {
	return func(r *Run, s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n > MaxThreads {
			return fmt.Errorf("give a number of threads, at most %d, or 0 for one per core", MaxThreads)
		}
		*field(r) = max(int(n), 0)
		return nil
	}
}

func number32(field func(*Run) *float32, low, high float64) func(*Run, string) error {
	return func(r *Run, s string) error {
		f, err := strconv.ParseFloat(s, 32)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return errors.New("give a number")
		}
		if f < low || f > high {
			switch {
			case low == math.SmallestNonzeroFloat32:
				return errors.New("give a number above 0")
			case math.IsInf(high, 1):
				return fmt.Errorf("give a number of at least %g", float32(low))
			case math.IsInf(low, -1):
				return fmt.Errorf("give a number of at most %g", float32(high))
			}
			return fmt.Errorf("give a number from %g to %g", float32(low), float32(high))
		}
		*field(r) = float32(f)
		return nil
	}
}

func word(field func(*Run) *string, words []string) func(*Run, string) error {
	return func(r *Run, s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("take one of %s", strings.Join(words, ", "))
		}
		*field(r) = s
		return nil
	}
}

func setLoadMode(r *Run, s string) error {
	if r.given["load-mode"] && r.LoadMode != s {
		return fmt.Errorf("this contradicts load mode %s, which another flag asked for: leave one out", r.LoadMode)
	}
	return word(func(r *Run) *string { return &r.LoadMode }, loadModes)(r, s)
}

// loadSwitch is a flag of older versions that stands for one load mode.
func loadSwitch(mode string) func(*Run, string) error {
	return func(r *Run, s string) error {
		if s != "true" {
			return errors.New("this is a switch: give it without a value")
		}
		return setLoadMode(r, mode)
	}
}

// setFlashAttention also takes the words that llama.cpp takes for on and off.
func setFlashAttention(r *Run, s string) error {
	switch s {
	case "on", "enabled", "true", "1":
		r.FlashAttention = "on"
	case "off", "disabled", "false", "0":
		r.FlashAttention = "off"
	case "auto", "-1":
		r.FlashAttention = "auto"
	default:
		return errors.New("take on, off or auto")
	}
	return nil
}

func setGPULayers(r *Run, s string) error {
	if s == "auto" || s == "all" {
		r.GPULayers = -1
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return errors.New("give a number of layers, auto or all")
	}
	r.GPULayers = max(int(n), -1)
	return nil
}

func setDevices(r *Run, s string) error {
	r.Devices = []string{}
	if s == "none" {
		return nil
	}
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return errors.New("a device name is empty: give DEV1,DEV2 or none")
		}
		r.Devices = append(r.Devices, name)
	}
	return nil
}

func setRPC(r *Run, s string) error {
	r.RPC = nil
	for server := range strings.SplitSeq(s, ",") {
		server = strings.TrimSpace(server)
		host, port, ok := strings.Cut(server, ":")
		if n, err := strconv.ParseUint(port, 10, 16); !ok || host == "" || err != nil || n == 0 {
			return fmt.Errorf("%q is not a server: give host:port,host:port", server)
		}
		r.RPC = append(r.RPC, server)
	}
	return nil
}
