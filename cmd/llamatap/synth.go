package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// synthArgs are the arguments of 'llamatap synth'; zero means what the preset says.
type synthArgs struct {
	out, arch, params, dtype          string
	layers, width, heads, kvHeads, ff int
	experts, vocab                    int
	seed                              uint64
	infill, quiet                     bool
}

func synthCommand() *cli.Command {
	return &cli.Command{
		Name: "synth", Summary: "make a GGUF model with random weights, of any size and architecture",
		Usage: "-o FILE [--arch NAME] [--params SIZE] [--type TYPE] [--seed N] [shape]",
		Text: `The file is valid: llama.cpp loads and decodes it, and it writes nonsense. The tokenizer is the default
model's (2,080 tokens). The same arguments give the same bytes on every machine; the same seed gives the same weights
in every type. Norms, biases and other vectors are F32. A matrix whose rows are not a multiple of a block gets the
type that llama-quantize would choose: Q4_K needs rows of a multiple of 256 (else Q5_0), Q8_0, Q5_0 and Q4_0 of 32
(else F16).

  llamatap synth -o tiny.gguf
  llamatap synth -o moe.gguf --arch qwen3moe --type q8_0
  llamatap synth -o 1b.gguf --params 1b --type q8_0 --vocab 32000
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := synthArgs{arch: "llama", params: "tiny", dtype: "f16", seed: 1}
			f.Add("-o, --output FILE", &a.out, "file to write (needed)")
			f.Add("--arch NAME", &a.arch, "architecture: "+strings.Join(synth.Archs(), ", ")+
				"; of embeddings and scores: "+strings.Join(synth.Encoders(), ", "))
			f.Add("--params SIZE", &a.params, "size: "+strings.Join(synth.Presets(), ", "))
			f.Add("--type TYPE", &a.dtype, "type of the matrices: f32, f16, bf16, q8_0, q5_0, q4_0, q4_k")
			f.Add("--seed N", &a.seed, "seed of the weights")
			f.Add("--layers N", &a.layers, "number of layers (default: by size)")
			f.Add("--width N", &a.width, "length of the residual stream (default: by size)")
			f.Add("--heads N", &a.heads, "attention heads (default: by size)")
			f.Add("--kv-heads N", &a.kvHeads, "key-value heads (default: by size)")
			f.Add("--ff N", &a.ff,
				"width of the feed-forward network, of one expert where there are experts (default: by size)")
			f.Add("--experts N", &a.experts, "experts per layer, for architectures that have them (default: by size)")
			f.Add("--vocab N", &a.vocab, "number of tokens; more than the tokenizer has are filled up with unused ones")
			f.Add("--infill", &a.infill,
				"give unused tokens the names of infill: "+
					"<|fim_prefix|>, <|fim_suffix|>, <|fim_middle|> …, <|eot_id|>")
			f.Add("--quiet", &a.quiet, "print nothing on success")
			return func([]string) error { return runSynth(a) }
		},
	}
}

// runSynth makes a GGUF model with random weights.
func runSynth(a synthArgs) error {
	if a.out == "" {
		return cli.Wrongf("no output file: give one with -o FILE")
	}
	model, err := planSynth(a)
	if err != nil {
		return cli.Wrong(err)
	}
	ctx, stop := untilInterrupt()
	defer stop()
	begin := time.Now()
	bar := present.NewProgress(progressTerminal(!a.quiet), "writing the model")
	err = model.WriteFile(ctx, a.out, bar.Of)
	bar.Done()
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if err == nil && !a.quiet {
		describeSynth(present.Out, a.out, model, time.Since(begin))
	}
	return err
}

// planSynth turns the arguments into a planned model with the default model's tokenizer.
func planSynth(a synthArgs) (*synth.Model, error) {
	c, err := synth.New(a.arch, a.params)
	if err != nil {
		return nil, err
	}
	if c.Type, err = gguf.ParseType(a.dtype); err != nil {
		return nil, fmt.Errorf("%w: choose one of f32, f16, bf16, q8_0, q5_0, q4_0, q4_k", err)
	}
	if a.experts != 0 && c.Experts == 0 {
		return nil, fmt.Errorf("--experts: %s has none; use mixtral, qwen2moe, qwen3moe, gpt-oss or jamba", a.arch)
	}
	for _, set := range []struct {
		to *int
		n  int
	}{
		{&c.Layers, a.layers}, {&c.Width, a.width}, {&c.Heads, a.heads}, {&c.KVHeads, a.kvHeads},
		{&c.Experts, a.experts}, {&c.Vocab, a.vocab},
	} {
		if set.n != 0 {
			*set.to = set.n
		}
	}
	if a.ff != 0 {
		c.FF, c.ExpertFF = a.ff, a.ff
	}
	c.Seed, c.Infill = a.seed, a.infill
	donor, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		return nil, fmt.Errorf("read the embedded model: %w", err)
	}
	return synth.Plan(c, &donor.Metadata)
}

func describeSynth(out io.Writer, path string, m *synth.Model, took time.Duration) {
	c := &m.Config
	fmt.Fprintf(out, "%s: %s, %d parameters, %d layers × %d, vocabulary %d, %s, seed %d, %s\n",
		path, c.Arch, m.Parameters(), c.Layers, c.Width, c.Vocab,
		strings.ToLower(c.Type.String()), c.Seed, present.Duration(took))
	fallbacks := m.Fallbacks()
	for _, t := range slices.Sorted(maps.Keys(fallbacks)) {
		fmt.Fprintf(out, "  %d matrices are %s, because their rows are not a multiple of %s blocks\n",
			fallbacks[t], strings.ToLower(t.String()), strings.ToLower(c.Type.String()))
	}
}
