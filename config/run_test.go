package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/cli"
)

// parseRun does what 'llamatap run' does with its arguments and environment.
func parseRun(args []string, env map[string]string) (*Run, error) {
	r, f := NewRun(), &cli.Flags{}
	r.Define(f)
	rest, err := f.Parse(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unexpected argument %q", rest[0])
	}
	if err != nil {
		return nil, err
	}
	if err := r.ResolveEnv(func(key string) (string, bool) { v, ok := env[key]; return v, ok }); err != nil {
		return nil, err
	}
	return r, r.Validate()
}

func TestRunFlags(t *testing.T) {
	tests := []struct {
		name string
		args string
		want func(*Run)
	}{
		{"defaults", "", func(*Run) {}},
		{"short", "-m a.gguf -n 5 -c 100 -b 64 -ub 32 -t 3 -tb 4 -ngl 9 -ctk q8_0 -ctv f32 -fa on -s 7 -lm mlock -v",
			func(r *Run) {
				r.Model, r.Predict, r.Context, r.Batch, r.MicroBatch = "a.gguf", 5, 100, 64, 32
				r.Threads, r.BatchThreads, r.GPULayers = 3, 4, 9
				r.CacheTypeK, r.CacheTypeV, r.FlashAttention, r.Seed, r.LoadMode, r.Verbose = "q8_0", "f32", "on", 7,
					"mlock", true
			}},
		{"long", "--model a.gguf --n-predict -2 --ctx-size 100 --batch-size 64 --ubatch-size 32 --threads 3 " +
			"--threads-batch 4 --n-gpu-layers all --seed -1", func(r *Run) {
			r.Model, r.Predict, r.Context, r.Batch, r.MicroBatch = "a.gguf", -2, 100, 64, 32
			r.Threads, r.BatchThreads = 3, 4
		}},
		{"equals", "--temp=0 --top-k=0 --predict=3", func(r *Run) { r.Temperature, r.TopK, r.Predict = 0, 0, 3 }},
		{"sampling",
			"--temperature 1.5 --top-k -1 --top-p 0.5 --min-p 0 --repeat-last-n 0 --repeat-penalty 1.1 " +
				"--presence-penalty -0.5 --frequency-penalty 0.25 --ignore-eos", func(r *Run) {
				r.Temperature, r.TopK, r.TopP, r.MinP, r.RepeatLastN = 1.5, -1, 0.5, 0, 0
				r.RepeatPenalty, r.PresencePenalty, r.FrequencyPenalty, r.IgnoreEOS = 1.1, -0.5, 0.25, true
			}},
		{"samplers",
			"--samplers Top-K;NUCLEUS;temp;typp -l 7+1.5 --logit-bias 8-inf --dry-sequence-breaker a " +
				"--dry-sequence-breaker b --grammar-file x --grammar y", func(r *Run) {
				r.Samplers = []string{"top_k", "top_p", "temperature", "typ_p"}
				r.LogitBias = []LogitBias{{7, 1.5}, {8, float32(math.Inf(-1))}}
				r.DryBreakers, r.Grammar = []string{"a", "b"}, "y"
			}},
		{"sampler letters",
			"--sampler-seq ksa --mirostat 2 --mirostat-lr 0.2 --mirostat-ent 4 --dry-sequence-breaker none --temp -1 " +
				"-bs --grammar y --grammar-file x", func(r *Run) {
				r.Samplers, r.DryBreakers = []string{"top_k", "top_n_sigma", "adaptive_p"}, []string{}
				r.Mirostat, r.MirostatEta, r.MirostatTau, r.Temperature = 2, 0.2, 4, 0
				r.OnBackend, r.GrammarFile = true, "x"
			}},
		{"sampler numbers",
			"--top-nsigma 1 --typical-p 0.5 --xtc-probability 0.5 --xtc-threshold 0.2 --dry-multiplier 1 " +
				"--dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n 9 --adaptive-target 0.5 " +
				"--adaptive-decay 0.99 --dynatemp-range 0.5 --dynatemp-exp 2", func(r *Run) {
				r.TopNSigma, r.TypicalP, r.XTCProbability, r.XTCThreshold = 1, 0.5, 0.5, 0.2
				r.DryMultiplier, r.DryBase, r.DryAllowedLength, r.DryLastN = 1, 2, 3, 9
				r.AdaptiveTarget, r.AdaptiveDecay, r.DynatempRange, r.DynatempExponent = 0.5, 0.99, 0.5, 2
			}},
		{"adapters",
			"--lora a,b --lora-scaled c:d:0.5 --control-vector e --control-vector-scaled f:-2,g:1 " +
				"--control-vector-layer-range 2 5", func(r *Run) {
				r.Loras = []ScaledFile{{"a", 1}, {"b", 1}, {"c:d", 0.5}}
				r.ControlVectors = []ScaledFile{{"e", 1}, {"f", -2}, {"g", 1}}
				r.ControlFirst, r.ControlLast = 2, 5
			}},
		{"positions",
			"--rope-scaling yarn --rope-scale 4 --rope-freq-base 20000 --yarn-orig-ctx 128 --yarn-ext-factor 0 " +
				"--yarn-attn-factor 2 --yarn-beta-slow 3 --yarn-beta-fast 4", func(r *Run) {
				r.Rope = Rope{"yarn", 20000, 0.25, 128, 0, 2, 3, 4}
			}},
		{"position frequency", "--rope-scale 4 --rope-freq-scale 0.5", func(r *Run) { r.RopeFreqScale = 0.5 }},
		{"going on",
			"-r a --reverse-prompt b -sp --context-shift --keep -1 --prompt-cache f --prompt-cache-all " +
				"--prompt-cache-ro", func(r *Run) {
				r.ReversePrompts, r.Special, r.ContextShift, r.Keep = []string{"a", "b"}, true, true, -1
				r.PromptCache, r.PromptCacheAll, r.PromptCacheRO = "f", true, true
			}},
		{"not going on", "--context-shift --no-context-shift --special=false", func(*Run) {}},
		{"embeddings",
			"--embeddings --pooling mean --attention causal --embd-normalize -1 --embd-output-format json+ " +
				"--embd-separator x --cls-separator y", func(r *Run) {
				r.Embeddings = Embeddings{true, "mean", "causal", -1, "json+", "x", "y"}
			}},
		{"switches", "--no-escape --no-warmup -nr",
			func(r *Run) { r.Escape, r.Warmup, r.Repack = false, false, false }},
		{"switch off and on", "--no-warmup --warmup -e", func(*Run) {}},
		{"switch with value", "--no-warmup=false --escape=false", func(r *Run) { r.Escape = false }},
		{"threads as llama.cpp", "-t -1 -tb 0", func(*Run) {}},
		{"flash attention words", "-fa disabled", func(r *Run) { r.FlashAttention = "off" }},
		{"devices", "--device CUDA0,CUDA1", func(r *Run) { r.Devices = []string{"CUDA0", "CUDA1"} }},
		{"no devices", "-dev none", func(r *Run) { r.Devices = []string{} }},
		{"rpc", "--rpc 127.0.0.1:50052,host:1", func(r *Run) { r.RPC = []string{"127.0.0.1:50052", "host:1"} }},
		{"old load flags", "--no-mmap", func(r *Run) { r.LoadMode = "none" }},
		{"last wins", "-n 1 --predict 2", func(r *Run) { r.Predict = 2 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseRun(append(strings.Fields(test.args), "-p", "-x y"), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := NewRun()
			want.Prompt = "-x y"
			test.want(want)
			got.given = nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestRunEnvironment(t *testing.T) {
	env := map[string]string{"LLAMA_ARG_CTX_SIZE": "99", "LLAMA_ARG_TOP_K": "7", "LLAMA_ARG_FLASH_ATTN": "off",
		"LLAMA_ARG_MODEL": "m.gguf"}
	r, err := parseRun([]string{"-p", "x", "--top-k", "3"}, env)
	if err != nil {
		t.Fatal(err)
	}
	if r.Context != 99 || r.TopK != 3 || r.FlashAttention != "off" || r.Model != "m.gguf" {
		t.Errorf("got %+v", r)
	}
	if !r.Given("ctx-size") || !r.Given("top-k") || r.Given("min-p") {
		t.Error("Given does not list what was given")
	}
	if _, err := parseRun([]string{"-p", "x"}, map[string]string{"LLAMA_ARG_BATCH": "no"}); err == nil ||
		!strings.Contains(err.Error(), "LLAMA_ARG_BATCH") {
		t.Errorf("bad variable: %v", err)
	}
}

// TestRunErrors checks that every wrong use is one line that says what and what to do.
func TestRunErrors(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string // part of the message
	}{
		{"no prompt", []string{"-n", "1"}, "give -p TEXT"},
		{"two prompts", []string{"-p", "a", "-f", "b"}, "leave one out"},
		{"empty file name", []string{"-f", ""}, "- for stdin"},
		{"empty model", []string{"-p", "a", "-m", ""}, "embedded model"},
		{"invalid UTF-8", []string{"-p", "a\xff"}, "UTF-8"},
		{"invalid UTF-8 in a name", []string{"-p", "a", "-m", "\xff.gguf"}, "UTF-8"},
		{"unknown", []string{"--pormpt", "a"}, "did you mean --prompt?"},
		{"unknown, nothing near", []string{"--xyzzy", "a"}, "unknown flag --xyzzy"},
		{"unknown behind one dash", []string{"-xyzzy", "a"}, "unknown flag -xyzzy"},
		{"misspelt behind one dash", []string{"-p", "a", "-no-mmpa=1"},
			"unknown flag -no-mmpa: did you mean -no-mmap?"},
		{"no value", []string{"-n"}, "-n needs a value"},
		{"all rows of text", []string{"--prompts", "a", "--all-rows"}, "give -n 0 too"},
		{"all rows, and logits", []string{"--prompts", "a", "-n", "0", "--all-rows", "--all-logits"},
			"computes no logits"},
		{"all rows of one prompt", []string{"-p", "a", "-n", "0", "--all-rows"}, "for many prompts"},
		{"not a number", []string{"-p", "a", "-n", "many"}, `-n "many": give -1`},
		{"overflow", []string{"-p", "a", "-n", "99999999999"}, "give at most 2147483647"},
		{"not a number", []string{"-p", "a", "-n", "many"}, "give -1"},
		{"predict", []string{"-p", "a", "-n", "-3"}, "-n"},
		{"context", []string{"-p", "a", "-c", "-1"}, "-c"},
		{"batch", []string{"-p", "a", "-b", "0"}, "at least 1"},
		{"ubatch above batch", []string{"-p", "a", "-b", "8", "-ub", "16"}, "lower -ub"},
		{"threads", []string{"-p", "a", "-t", "1000"}, "at most 512"},
		{"top-p", []string{"-p", "a", "--top-p", "1.5"}, "from 0 to 1"},
		{"samplers", []string{"-p", "a", "--samplers", "top_k;topq"}, `there is no sampler "topq"`},
		{"sampler letters", []string{"-p", "a", "--sampler-seq", "kq"}, "edskypmxt"},
		{"dry base", []string{"-p", "a", "--dry-base", "0.5"}, "at least 1"},
		{"dry length", []string{"-p", "a", "--dry-allowed-length", "-1"}, "at least 0"},
		{"adaptive target", []string{"-p", "a", "--adaptive-target", "2"}, "at most 1"},
		{"adaptive decay", []string{"-p", "a", "--adaptive-decay", "1"}, "from 0 to 0.99"},
		{"mirostat", []string{"-p", "a", "--mirostat", "3"}, "take 1 or 2"},
		{"logit bias", []string{"-p", "a", "-l", "12"}, "15043+1"},
		{"logit bias of a word", []string{"-p", "a", "-l", "the+1"}, "15043+1"},
		{"logit bias without a number", []string{"-p", "a", "-l", "12+x"}, "15043+1"},
		{"grammar file", []string{"-p", "a", "--grammar-file", ""}, "no file name"},
		{"JSON schema", []string{"-p", "a", "-j", "{}"}, "llamatap llama-cli"},
		{"JSON schema file", []string{"-p", "a", "-jf", "x.json"}, "llamatap llama-cli"},
		{"lora", []string{"-p", "a", "--lora", ""}, "no file name"},
		{"lora list", []string{"-p", "a", "--lora", "a,,b"}, "a file name is empty"},
		{"lora scale", []string{"-p", "a", "--lora-scaled", "a"}, "give FNAME:SCALE"},
		{"lora scale of a word", []string{"-p", "a", "--control-vector-scaled", "a:b"}, "give FNAME:SCALE"},
		{"layer range", []string{"-p", "a", "--control-vector-layer-range", "3", "2"}, "the first and the last layer"},
		{"half a layer range", []string{"-p", "a", "--control-vector-layer-range", "3"},
			"give --control-vector-layer-range START END"},
		{"rope scaling", []string{"-p", "a", "--rope-scaling", "longrope"}, "take one of none, linear, yarn"},
		{"rope scale", []string{"-p", "a", "--rope-scale", "0"}, "above 0"},
		{"rope base", []string{"-p", "a", "--rope-freq-base", "-1"}, "at least 0"},
		{"yarn context", []string{"-p", "a", "--yarn-orig-ctx", "-1"}, "0 for the model's own"},
		{"reverse prompt", []string{"-p", "a", "-r", ""}, "no text"},
		{"keep", []string{"-p", "a", "--keep", "-2"}, "-1 for the whole prompt"},
		{"prompt cache", []string{"-p", "a", "--prompt-cache", ""}, "no file name"},
		{"all of no prompt cache", []string{"-p", "a", "--prompt-cache-all"}, "give --prompt-cache FNAME"},
		{"prompts and a prompt", []string{"-p", "a", "--prompts", "b"}, "leave -p and -f out"},
		{"results of one prompt", []string{"-p", "a", "--results", "b"}, "give them with --prompts"},
		{"sequences of one prompt", []string{"-p", "a", "-np", "2"}, "give them with --prompts"},
		{"no sequences", []string{"--prompts", "a", "-np", "0"}, "at least 1"},
		{"too many sequences", []string{"--prompts", "a", "-np", "1000"}, "at most 256"},
		{"sequences above batch", []string{"--prompts", "a", "-np", "9", "-b", "8"}, "raise -b"},
		{"prompts and a cache", []string{"--prompts", "a", "--prompt-cache", "b"}, "is for one prompt"},
		{"prompts file", []string{"--prompts", ""}, "no file name"},
		{"norm of text", []string{"-p", "a", "--embd-normalize", "1"}, "give --embeddings too"},
		{"embeddings of prompts", []string{"--embeddings", "--prompts", "a"}, "leave it or --prompts out"},
		{"no separator", []string{"-p", "a", "--embeddings", "--cls-separator", ""}, "no text: give one"},
		{"pairs of text", []string{"-p", "a", "--cls-separator", "|"}, "give --embeddings too"},
		{"pooling", []string{"-p", "a", "--embeddings", "--pooling", "max"}, "take one of none"},
		{"embedding format", []string{"-p", "a", "--embeddings", "--embd-output-format", "xml"}, "take array"},
		{"NaN", []string{"-p", "a", "--temp", "NaN"}, "give a number"},
		{"infinite", []string{"-p", "a", "--temp", "1e99"}, "give a number"},
		{"repeat-penalty", []string{"-p", "a", "--repeat-penalty", "0"}, "above 0"},
		{"seed", []string{"-p", "a", "-s", "-2"}, "-1 for a random seed"},
		{"cache type", []string{"-p", "a", "-ctk", "q2_k"}, "take one of f32"},
		{"V cache without flash attention", []string{"-p", "a", "-ctv", "q8_0", "-fa", "off"}, "needs flash attention"},
		{"flash attention", []string{"-p", "a", "-fa", "maybe"}, "on, off or auto"},
		{"load mode", []string{"-p", "a", "-lm", "x"}, "take one of auto"},
		{"load modes", []string{"-p", "a", "-lm", "dio", "--mlock"}, "contradicts"},
		{"load modes, other order", []string{"-p", "a", "--mlock", "-lm", "dio"}, "contradicts"},
		{"old load flags", []string{"-p", "a", "--no-mmap", "--mlock"}, "contradicts"},
		{"devices", []string{"-p", "a", "-dev", "a,,b"}, "empty"},
		{"devices and layers", []string{"-p", "a", "-dev", "none", "-ngl", "5"}, "leave one out"},
		{"devices and rpc", []string{"-p", "a", "-dev", "none", "--rpc", "a:1"}, "leave one out"},
		{"rpc", []string{"-p", "a", "--rpc", "localhost"}, "host:port"},
		{"rpc port", []string{"-p", "a", "--rpc", "localhost:99999"}, "host:port"},
		{"switch with a value", []string{"-p", "a", "--warmup=maybe"}, "without a value"},
		{"long value", []string{"-p", "a", "-n", strings.Repeat("long ", 99)}, "…"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseRun(test.args, nil)
			if err == nil {
				t.Fatal("no error")
			}
			if text := err.Error(); !strings.Contains(text, test.want) || strings.Contains(text, "\n") ||
				len(text) > 240 {
				t.Errorf("%q does not contain %q, or is not one short line", text, test.want)
			}
		})
	}
	if _, err := parseRun([]string{"-h"}, nil); !errors.Is(err, cli.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

// TestRunDefaultsInHelp checks that what help calls the default is the default.
func TestRunDefaultsInHelp(t *testing.T) {
	for i := range llamaOptions {
		o := &llamaOptions[i]
		value, skip := o.byDef, map[string]bool{"": true, "the embedded model": true, "all": true,
			"the model's own": true, "stdout": true}[o.byDef]
		switch value {
		case "on":
			value = "true"
		case "off":
			value = "false"
		case "one per core", "as --threads":
			value = "0"
		}
		if skip {
			continue
		}
		r := NewRun()
		if err := o.set(r, value); err != nil {
			t.Errorf("%s: its default %q: %v", o.key, value, err)
		}
		if !reflect.DeepEqual(r, NewRun()) {
			t.Errorf("%s: help says that the default is %q, and NewRun says otherwise", o.key, o.byDef)
		}
	}
}
