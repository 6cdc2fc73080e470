package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/models"
)

// synthArgs are the arguments of 'llamatap synth'; zero means what the preset says.
type synthArgs struct {
	out, arch, params, dtype          string
	layers, width, heads, kvHeads, ff int
	experts, vocab                    int
	seed                              uint64
	infill, quiet                     bool
}

// runSynth makes a GGUF model with random weights.
func runSynth(args []string) error {
	a, err := parseSynth(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	model, err := planSynth(a)
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	begin := time.Now()
	bar := present.NewProgress(progressTerminal(!a.quiet), "writing the model")
	err = model.WriteFile(ctx, a.out, bar.Of)
	bar.Done()
	if err != nil {
		if ctx.Err() != nil {
			return exitStatus{Code: 130, Err: errors.New("interrupted; nothing was written")}
		}
		return err
	}
	if !a.quiet {
		describeSynth(terminal.Out, a.out, model, time.Since(begin))
	}
	return nil
}

func parseSynth(args []string) (synthArgs, error) {
	var a synthArgs
	flags := flag.NewFlagSet("synth", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.out, "o", "", "`FILE` to write (needed)")
	flags.StringVar(&a.arch, "arch", "llama", "architecture: "+strings.Join(synth.Archs(), ", ")+"; of embeddings and scores: "+strings.Join(synth.Encoders(), ", "))
	flags.StringVar(&a.params, "params", "tiny", "size: "+strings.Join(synth.Presets(), ", "))
	flags.StringVar(&a.dtype, "type", "f16", "type of the matrices: f32, f16, bf16, q8_0, q5_0, q4_0, q4_k")
	flags.Uint64Var(&a.seed, "seed", 1, "seed of the weights")
	flags.IntVar(&a.layers, "layers", 0, "number of layers (default: by size)")
	flags.IntVar(&a.width, "width", 0, "length of the residual stream (default: by size)")
	flags.IntVar(&a.heads, "heads", 0, "attention heads (default: by size)")
	flags.IntVar(&a.kvHeads, "kv-heads", 0, "key-value heads (default: by size)")
	flags.IntVar(&a.ff, "ff", 0, "width of the feed-forward network, of one expert where there are experts (default: by size)")
	flags.IntVar(&a.experts, "experts", 0, "experts per layer, for architectures that have them (default: by size)")
	flags.IntVar(&a.vocab, "vocab", 0, "number of tokens; more than the tokenizer has are filled up with unused ones")
	flags.BoolVar(&a.infill, "infill", false, "give unused tokens the names of infill: <|fim_prefix|>, <|fim_suffix|>, <|fim_middle|> …, <|eot_id|>")
	flags.BoolVar(&a.quiet, "quiet", false, "say nothing on success")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			synthHelp(terminal.Out, flags)
			return a, err
		}
		return a, fmt.Errorf("%w; 'llamatap synth --help' lists the flags", config.ExplainUnknownFlag(flags, args, err))
	}
	switch {
	case flags.NArg() > 0:
		return a, fmt.Errorf("unexpected argument %q; 'llamatap synth --help' lists the flags", flags.Arg(0))
	case a.out == "":
		return a, errors.New("no output file: give one with -o FILE")
	}
	return a, nil
}

func synthHelp(out io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(out, `llamatap synth: make a GGUF model with random weights

usage: llamatap synth -o FILE [--arch NAME] [--params SIZE] [--type TYPE] [--seed N] [shape]

The file is valid: llama.cpp loads and decodes it, and it writes nonsense. The tokenizer is the default model's (2,080 tokens).
The same arguments give the same bytes on every machine; the same seed gives the same weights in every type.
Norms, biases and other vectors are F32. A matrix whose rows are no whole number of blocks gets the type that llama-quantize
would choose: Q4_K needs rows of a multiple of 256 (else Q5_0), Q8_0, Q5_0 and Q4_0 of 32 (else F16).

  llamatap synth -o tiny.gguf
  llamatap synth -o moe.gguf --arch qwen3moe --type q8_0
  llamatap synth -o 1b.gguf --params 1b --type q8_0 --vocab 32000

flags:
`)
	printFlags(out, flags)
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
		return nil, fmt.Errorf("--experts: %s has none; take mixtral, qwen2moe, qwen3moe, gpt-oss or jamba", a.arch)
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
	donor, err := gguf.Read(bytes.NewReader(models.Default), int64(len(models.Default)))
	if err != nil {
		return nil, fmt.Errorf("read the embedded model: %w", err)
	}
	return synth.Plan(c, &donor.Metadata)
}

func describeSynth(out io.Writer, path string, m *synth.Model, took time.Duration) {
	c := &m.Config
	fmt.Fprintf(out, "%s: %s, %d parameters, %d layers × %d, vocabulary %d, %s, seed %d, %.1f s\n",
		path, c.Arch, m.Parameters(), c.Layers, c.Width, c.Vocab, strings.ToLower(c.Type.String()), c.Seed, took.Seconds())
	fallbacks := m.Fallbacks()
	for _, t := range slices.Sorted(maps.Keys(fallbacks)) {
		fmt.Fprintf(out, "  %d matrices are %s, because their rows are no whole number of %s blocks\n",
			fallbacks[t], strings.ToLower(t.String()), strings.ToLower(c.Type.String()))
	}
}
