package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/gguf"
)

// The prompts of a bulk capture, of random tokens, and the length at which llama-bench measures.
const (
	bulkPrompts = 4
	bulkLength  = 512
)

// bulk compares prompts whose residual streams go into a dataset with llama-bench, which captures nothing: all layers,
// the last of which llama-bench computes for one token of a prompt alone, and all but that one.
func (t Tap) bulk() []Pair {
	if t.LlamaBench == "" {
		return nil
	}
	layers := t.Model.layers()
	base := Side{"llama-bench -p 512", func(ctx context.Context) (Sample, error) {
		return t.Model.llamaBench(ctx, t.LlamaBench, bulkLength, 0)
	}}
	pair := func(name, row string, atLeast float64, flags ...string) Pair {
		test := Side{name, func(ctx context.Context) (Sample, error) { return t.Model.capture(ctx, flags) }}
		return Pair{Base: base, Test: test, Gates: []Gate{{Name: row + " / llama-bench -p 512", AtLeast: atLeast,
			Of: Prefill}}}
	}
	capture := []string{"--tap-point", "resid_post", "--tap-dataset"}
	return []Pair{
		pair("bulk, nothing captured", "(m) packed prompts", 0),
		pair("bulk, all layers but the last", "(m) dataset, all layers but the last", 0,
			append([]string{"--tap-layer", fmt.Sprintf("0-%d", layers-2)}, capture...)...),
		pair("bulk", "(m) dataset, all layers", 0.95, append([]string{"--all-rows"}, capture...)...),
	}
}

// identity is what the model's file says of itself; the zero value where it cannot be read.
func (m Model) identity() (id gguf.Identity) {
	if f, err := gguf.Open(m.Path); err == nil {
		id = gguf.Identify(f, m.Path)
	}
	return id
}

func (m Model) layers() int { return int(m.identity().Layers) }

// bulkPattern reads what run --prompts prints when all prompts are computed.
var bulkPattern = regexp.MustCompile(`([0-9]+) tokens? in and 0 out in ([0-9.]+ [mµ]?s|[0-9hm]+s) `)

// capture computes prompts in bulk, with flags of which the last may be --tap-dataset, whose folder follows.
func (m Model) capture(ctx context.Context, flags []string) (s Sample, err error) {
	self, err := llama.Self()
	if err != nil {
		return s, err
	}
	out, remove, err := workFolder(m.Dir)
	if err != nil {
		return s, err
	}
	defer remove()
	prompts := filepath.Join(out, "prompts.jsonl")
	if err := m.writePrompts(prompts); err != nil {
		return s, err
	}
	threads := strconv.Itoa(m.Threads)
	args := append([]string{"run", "-m", m.Path, "--prompts", prompts, "--results", filepath.Join(out, "results.jsonl"),
		"-n", "0", "-c", strconv.Itoa(4 * bulkLength), "-t", threads, "-tb", threads}, flags...)
	if len(flags) > 0 {
		args = append(args, filepath.Join(out, "dataset"), "--tap-out", filepath.Join(out, "runs"))
	}
	_, stderr, err := run(exec.CommandContext(ctx, self, args...))
	if err != nil {
		return s, err
	}
	match := bulkPattern.FindSubmatch(stderr)
	if match == nil {
		return s, fmt.Errorf("no rate in what the run printed: %s", stderr)
	}
	tokens, wrong := strconv.Atoi(string(match[1]))
	took, err := time.ParseDuration(strings.ReplaceAll(string(match[2]), " ", ""))
	if err = errors.Join(err, wrong); err == nil {
		s.Prefill = float64(tokens) / took.Seconds()
	}
	return s, err
}

// writePrompts writes prompts of random tokens, the same ones each time.
func (m Model) writePrompts(path string) error {
	vocab := int(m.identity().Vocab)
	if vocab < 2 {
		return fmt.Errorf("%s has no vocabulary to make prompts of", m.Path)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	random, out := rand.New(rand.NewPCG(1, 2)), json.NewEncoder(file)
	for range bulkPrompts {
		tokens := make([]int, bulkLength)
		for i := range tokens {
			tokens[i] = random.IntN(vocab)
		}
		if err := out.Encode(map[string]any{"prompt": tokens}); err != nil {
			return err
		}
	}
	return file.Close()
}
