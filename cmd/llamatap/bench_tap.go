package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/runner/host"
)

// runBenchTap measures what the tap costs and judges it by gates.
func runBenchTap(args []string) error {
	flags := flag.NewFlagSet("bench tap", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "llamatap bench tap: what the tap costs, as ratios of paired runs on this machine\n\nusage: llamatap bench [tap [flags]]\n\n")
		flags.PrintDefaults()
	}
	var (
		model  = flags.String("m", "", "GGUF `model` (default: a 1B model with random weights, made on first use)")
		dir    = flags.String("dir", filepath.Join("build", "bench"), "`folder` for that model and for what is recorded meanwhile")
		pairs  = flags.Int("pairs", 8, "at least this many pairs per comparison")
		limit  = flags.Duration("time", 3*time.Minute, "add pairs to a comparison that noise leaves open, for so long")
		tokens = flags.Int("n", 48, "tokens to generate per run")
		prompt = flags.Int("prompt", 40, "repetitions of a line of ten tokens as prompt")
		thread = flags.Int("t", 2, "threads of the model")
		stock  = flags.Bool("stock", true, "compare with llama-bench and llama-completion")
	)
	if err := flags.Parse(args); err != nil {
		return exitStatus{Code: 2}
	}
	if *pairs < 1 || *tokens < 2 || *prompt < 1 || *thread < 1 {
		return exitStatus{Code: 2, Err: fmt.Errorf("-pairs, -n, -prompt and -t must be positive, -n at least 2")}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := benchModel(ctx, *model, *dir)
	if err != nil {
		return err
	}
	t := bench.Tap{
		Model:   bench.Model{Path: path, Threads: *thread, Prompt: strings.Repeat("\tif err != nil { return nil, err }\n", *prompt), Tokens: *tokens},
		OffCost: tap.OffCost, Limits: bench.Limits{MinPairs: *pairs, Time: *limit}, MemoryBound: 256 << 20,
		Out: os.Stdout, Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	}
	if *stock {
		t.LlamaBench, t.Completion = stockProgram("llama-bench"), stockProgram("llama-completion")
	}
	fmt.Printf("%s, %d CPUs, %d threads, prompt of %d lines, %d tokens generated, %s\n", path, runtime.NumCPU(), *thread, *prompt, *tokens, time.Now().UTC().Format(time.RFC3339))
	return t.Run(ctx)
}

// benchModel returns the model to measure with, making the default one where it is missing.
func benchModel(ctx context.Context, model, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if model != "" {
		return model, nil
	}
	path := filepath.Join(dir, "llama-1b-q8_0.gguf")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	self, err := llama.Self()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self, "synth", "-o", path, "--arch", "llama", "--params", "1b", "--type", "q8_0", "--seed", "1")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("make the model of the benchmark: %w", err)
	}
	return path, nil
}

// stockProgram is the path that starts one of llama.cpp's own programs, "" where it is not there.
func stockProgram(name string) string {
	program, err := host.Find(name)
	if err != nil {
		return ""
	}
	return program.Starter()
}
