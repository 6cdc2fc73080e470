//go:build llama

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// drawn are settings with random values, drawn by r.
func drawn(r *rand.Rand) []string {
	number := func(low, high float64) string { return fmt.Sprintf("%.3f", low+r.Float64()*(high-low)) }
	whole := func(below int) string { return fmt.Sprint(r.IntN(below)) }
	chain := func() string {
		names := config.SamplerNames()
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return strings.Join(names[:r.IntN(len(names))], ";")
	}
	all := [][]string{
		{"--temp", number(0, 3)}, {"--top-k", whole(60)}, {"--top-p", number(0.1, 1)}, {"--min-p", number(0, 0.3)},
		{"--typical", number(0.1, 1)},
		{"--top-nsigma", number(-1, 3)}, {"--xtc-probability", number(0, 1), "--xtc-threshold", number(0, 0.6)},
		{"--repeat-penalty", number(0.7, 2), "--repeat-last-n", whole(100)},
		{"--presence-penalty", number(-1, 2), "--frequency-penalty", number(-1, 2)},
		{"--dry-multiplier", number(0, 3), "--dry-allowed-length", whole(4), "--dry-penalty-last-n", whole(100)},
		{"--dynatemp-range", number(0, 2), "--dynatemp-exp", number(0.2, 2)},
		{"--mirostat", whole(3), "--mirostat-ent", number(1, 8), "--mirostat-lr", number(0, 1)},
		{"--adaptive-target", number(-0.5, 1), "--adaptive-decay", number(0, 0.99)}, {"--samplers", chain()},
		{"--grammar", goGrammar}, {"--grammar", jsonGrammar},
		{"-l", whole(2000) + "+" + number(0, 5), "-l", whole(2000) + "-inf"}, {"--ignore-eos"}, {"-bs"}, {"-sp"},
		{"--no-warmup"}, {"--no-repack"}, {"-r", "x", "-r", "func"},
		{"-c", "256", "--context-shift", "--keep", whole(100), "-n", "200"},
		{"-b", "50", "-ub", fmt.Sprint(1 + r.IntN(50))}, {"-ctk", "q8_0"}, {"--rope-scale", number(0.5, 4)},
	}
	var args []string
	for range 1 + r.IntN(6) {
		args = append(args, all[r.IntN(len(all))]...)
	}
	return args
}

// TestRandomSettings compares 250 runs with settings drawn at random. Where llama-completion aborts, a grammar
// leaves nothing.
func TestRandomSettings(t *testing.T) {
	testenv.Slow(t)
	r := rand.New(rand.NewPCG(99, 6))
	texts := []string{longPrompt, "func main() {\n", "// Package x\n", "x", "Grüße 世界"}
	equal := 0
	for range 250 {
		args := slices.Concat([]string{"-m", testenv.Model(t), "-t", "1", "-n", "40", "-s", fmt.Sprint(r.Uint32N(1e6)),
			"-p", texts[r.IntN(len(texts))]}, drawn(r))
		want, stockErr := tryStock(t, args...)
		var out strings.Builder
		_, err := runner.Run(context.Background(), runner.Options{Config: parse(t, args...), Stdout: &out})
		got := strings.ReplaceAll(out.String(), "\x00", "")
		switch {
		case stockErr != nil && errors.Is(err, llama.ErrGrammar):
		case stockErr != nil || err != nil || got != want:
			t.Errorf("%q:\n got %q, %v\nwant %q, %v", args, got, err, want, stockErr)
		default:
			equal++
		}
	}
	if equal < 220 {
		t.Errorf("only %d of 250 runs say anything: draw other settings", equal)
	}
}
