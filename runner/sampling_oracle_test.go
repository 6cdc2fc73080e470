//go:build llama

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// goGrammar is a function whose lines are assignments: its choices are seldom the model's own.
const goGrammar = `root ::= name "(" name " " ("int" | "string") ") {\n" line+ "}\n"
line ::= "\t" name " := " (name | [0-9]+) "\n"
name ::= [a-z] [a-zA-Z]{0,12}
`

// jsonGrammar is llama.cpp's grammar of JSON, shortened.
const jsonGrammar = `root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" ["\\bfnrt])* "\"" ws
number ::= "-"? [0-9]{1,15} ("." [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
`

// samplers are settings for each sampler alone, and for several together.
var samplers = []struct {
	name string
	args []string
}{
	{"none", []string{"--samplers", ""}},
	{"penalties", []string{"--samplers", "penalties", "--repeat-penalty", "1.3", "--repeat-last-n", "20",
		"--presence-penalty", "0.7", "--frequency-penalty", "0.3"}},
	{"penalties off", []string{"--samplers", "penalties", "--repeat-last-n", "0", "--repeat-penalty", "1.3"}},
	{"dry", []string{"--samplers", "dry;top_k", "--top-k", "3", "--dry-multiplier", "2"}},
	{"dry breakers", []string{"--samplers", "dry;top_k", "--top-k", "3", "--dry-multiplier", "2", "--dry-base", "1.3",
		"--dry-allowed-length", "1",
		"--dry-penalty-last-n", "40", "--dry-sequence-breaker", `\t`, "--dry-sequence-breaker", "e"}},
	{"dry without breakers", []string{"--samplers", "dry;top_k", "--top-k", "3", "--dry-multiplier", "2",
		"--dry-sequence-breaker", "none"}},
	{"top_n_sigma", []string{"--samplers", "top_n_sigma", "--top-nsigma", "0.9"}},
	{"top_k", []string{"--samplers", "top_k", "--top-k", "5"}},
	{"typ_p", []string{"--samplers", "typ_p", "--typical", "0.3"}},
	{"top_p", []string{"--samplers", "top_p", "--top-p", "0.5"}},
	{"min_p", []string{"--samplers", "min_p", "--min-p", "0.2"}},
	{"xtc", []string{"--samplers", "top_k;xtc", "--top-k", "8", "--xtc-probability", "0.6", "--xtc-threshold", "0.08"}},
	{"temperature", []string{"--samplers", "temperature", "--temp", "0.6"}},
	{"temperature 0", []string{"--samplers", "temperature", "--temp", "-1"}},
	{"dynamic temperature", []string{"--samplers", "temperature", "--temp", "0.7", "--dynatemp-range", "0.5",
		"--dynatemp-exp", "1.4"}},
	{"mirostat", []string{"--mirostat", "1", "--mirostat-ent", "3", "--mirostat-lr", "0.2"}},
	{"mirostat 2", []string{"--mirostat", "2", "--mirostat-ent", "2.5", "--temp", "1.2"}},
	{"adaptive_p", []string{"--samplers", "adaptive_p;min_p", "--min-p", "0.02", "--adaptive-target", "0.4",
		"--adaptive-decay", "0.8"}},
	{"adaptive_p off", []string{"--samplers", "adaptive-p;top-p"}},
	{"infill", []string{"--samplers", "top_k;top_p;infill", "--top-p", "0.99"}},
	{"grammar", []string{"--grammar", goGrammar, "--temp", "1.5"}},
	{"grammar, greedily", []string{"--grammar", jsonGrammar, "--temp", "0"}},
	{"grammar and mirostat", []string{"--grammar", goGrammar, "--mirostat", "2"}},
	{"logit bias", []string{"-l", "12+3", "-l", "10-inf", "--logit-bias", "300-2.5"}},
	{"ignore end", []string{"--ignore-eos", "--temp", "3", "--top-k", "0", "--top-p", "1", "--min-p", "0"}},
	{"backend", []string{"--backend-sampling", "--temp", "1.3"}},
	{"backend alone", []string{"-bs", "--samplers", "top_k;min_p;temperature", "--top-k", "20", "--temp", "1.5"}},
	{"backend, greedily", []string{"-bs", "--samplers", "top_k;temperature", "--temp", "0"}},
	{"backend and grammar", []string{"-bs", "--grammar", goGrammar}},
	{"all", []string{"--repeat-penalty", "1.1", "--dry-multiplier", "0.8", "--top-n-sigma", "2", "--top-k", "50",
		"--typical-p", "0.9", "--top-p", "0.9",
		"--min-p", "0.01", "--xtc-probability", "0.3", "--temp", "1.4", "--dynatemp-range", "0.3"}},
	{"another order", []string{"--samplers", "Temperature;Top-K;nucleus;MINP;xtc;typ;penalties;dry;topnsigma",
		"--xtc-probability", "0.5", "--temp", "1.6",
		"--dry-multiplier", "1", "--frequency-penalty", "0.4", "--typical", "0.8"}},
	{"an order in letters", []string{"--sampler-seq", "tkipyxd", "--xtc-probability", "0.5", "--temp", "1.2",
		"--dry-multiplier", "1", "--typical", "0.7"}},
	{"the last order counts", []string{"--sampler-seq", "kt", "--samplers", "top_p;temperature", "--sampling-seq",
		"mpa", "--adaptive-target", "0.2"}},
}

// seeded compares a text with llama-completion's, byte for byte.
func seeded(t *testing.T, seed, tokens string, args ...string) (string, runner.Result) {
	t.Helper()
	return sameText(t, append([]string{"-m", testenv.Model(t), "-p", longPrompt + "func (r *Reader) ", "-n", tokens,
		"-t", "1", "-s", seed}, args...)...)
}

// TestSamplers compares every sampler alone and in chains. Each setting must change the text, or the comparison
// says nothing.
func TestSamplers(t *testing.T) {
	plain, _ := ours(t, "-m", testenv.Model(t), "-p", longPrompt+"func (r *Reader) ", "-n", "40", "-t", "1", "-s", "5",
		"--samplers", "min_p", "--min-p", "0")
	for _, test := range brief(testenv.ByDay(samplers, len(samplers)/3), 2) {
		t.Run(test.name, func(t *testing.T) {
			text, _ := seeded(t, "5", "40", test.args...)
			switch test.name {
			case "none", "penalties off", "adaptive_p off":
				return // these are the plain choice by chance
			}
			if text == plain {
				t.Errorf("%q changes nothing", test.args)
			}
		})
	}
}

// TestSamplersLong is TestSamplers with three seeds and 200 tokens.
func TestSamplersLong(t *testing.T) {
	testenv.Slow(t)
	for _, test := range samplers {
		t.Run(test.name, func(t *testing.T) {
			for _, seed := range []string{"1", "42", "4000000000"} {
				seeded(t, seed, "200", test.args...)
			}
		})
	}
}

// TestRandomSeed repeats a run with the seed that it printed, which all of its samplers had.
func TestRandomSeed(t *testing.T) {
	for name, args := range map[string][]string{
		"dist": {"--temp", "3"}, "xtc": {"--temp", "3", "--xtc-probability", "0.5", "--xtc-threshold", "0.01"},
		"adaptive_p": {"--samplers", "xtc;adaptive_p", "--adaptive-target", "0.3", "--xtc-probability", "0.5",
			"--xtc-threshold", "0.01"}, "mirostat": {"--mirostat", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-p", "func (r *Reader) ", "-n", "30", "-t", "1"}, args...)
			want, r := ours(t, append(args, "-s", "-1")...)
			if got, again := ours(t, append(args, "-s", fmt.Sprint(r.Seed))...); got != want || again.Seed != r.Seed {
				t.Errorf("with seed %d: %q, before: %q", r.Seed, got, want)
			}
			if other, second := ours(t, append(args, "-s", "-1")...); second.Seed == r.Seed || other == want {
				t.Errorf("seed %d was drawn twice", r.Seed)
			}
		})
	}
}

// TestTokenAllocations checks that a further token takes no memory of Go: 400 more may not take 40 allocations more.
func TestTokenAllocations(t *testing.T) {
	testenv.NotWithRace(t)
	allocations := func(tokens string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ours(t, "-p", "func (r *Reader) ", "-n", tokens, "-t", "1", "-s", "1", "--ignore-eos", "--repeat-penalty",
			"1.1", "-r", "never", "--grammar", `root ::= [^\x00]*`)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	allocations("1")
	if few, many := allocations("50"), allocations("450"); many > few+40 {
		t.Errorf("%d allocations for 50 tokens, %d for 450", few, many)
	}
}

func TestGrammarFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grammar.gbnf")
	if err := os.WriteFile(file, []byte(jsonGrammar), 0o600); err != nil {
		t.Fatal(err)
	}
	seeded(t, "9", "30", "--grammar", goGrammar, "--grammar-file", file)
	seeded(t, "9", "30", "--grammar-file", file, "--grammar", goGrammar)
	if text, _ := ours(t, "-p", "x", "-n", "5", "--grammar-file", file); !strings.HasPrefix(text, "{") {
		t.Errorf("%q does not follow the grammar", text)
	}
}

// TestGrammarEnds lets the grammar end the text.
func TestGrammarEnds(t *testing.T) {
	_, r := seeded(t, "1", "50", "--grammar", `root ::= "func" " main"?`)
	if r.Finish != runner.FinishStop {
		t.Errorf("ended by %s", r.Finish)
	}
}

// TestModelRecommendsSamplers lets the metadata of the model set the chain, unless a flag does.
func TestModelRecommendsSamplers(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	dir := t.TempDir()
	chain, mirostat := filepath.Join(dir, "chain.gguf"), filepath.Join(dir, "mirostat.gguf")
	synthesize(t, chain, "llama", map[string]any{
		"general.sampling.sequence": "temperature;xtc;Top-K;nonsense", "general.sampling.xtc_probability": float32(0.7),
		"general.sampling.xtc_threshold": float32(0.0001), "general.sampling.top_k": int32(30),
	})
	synthesize(t, mirostat, "llama", map[string]any{
		"general.sampling.mirostat": int32(2), "general.sampling.mirostat_tau": float32(4),
		"general.sampling.mirostat_eta": float32(0.3),
	})
	for _, args := range [][]string{
		{"-m", chain}, {"-m", chain, "--samplers", "top_k"}, {"-m", chain, "--sampling-seq", "k"},
		{"-m", chain, "--xtc-probability", "0"},
		{"-m", mirostat}, {"-m", mirostat, "--mirostat", "0"}, {"-m", mirostat, "--mirostat-ent", "8"},
	} {
		same(t, append(args, "-p", "func main", "-n", "30", "-t", "1", "-s", "3")...)
	}
}

func TestSamplingErrors(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.gbnf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		is   error
		want string
	}{
		{"no such token", []string{"-l", "2080+1"}, nil, "tokens 0 to 2079"},
		{"grammar without root", []string{"--grammar", `x ::= "a"`}, llama.ErrGrammar, "'root'"},
		{"grammar that recurs", []string{"--grammar", `root ::= root "a"`}, llama.ErrGrammar, "left recursion"},
		{"no grammar", []string{"--grammar", "((("}, llama.ErrGrammar, "expecting name at ((("},
		{"grammar of an unknown rule", []string{"--grammar", "root ::= some"}, llama.ErrGrammar,
			"Undefined rule identifier 'some'"},
		{"no grammar file", []string{"--grammar-file", "/nope.gbnf"}, os.ErrNotExist, "check the path"},
		{"empty grammar file", []string{"--grammar-file", empty}, nil, "is empty"},
		{"nothing is left", []string{"--grammar", `root ::= "a"`, "--ignore-eos"}, llama.ErrGrammar,
			"leave --ignore-eos"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := runner.Run(context.Background(),
				runner.Options{Config: parse(t, append([]string{"-p", "a", "-n", "9", "-t", "1"}, test.args...)...)})
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line with %q", err, test.want)
			}
			t.Log(err)
		})
	}
}
