package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/runner/host"
)

// runBenchTap measures what the tap costs and judges it by gates.
func runBenchTap(args []string) error {
	flags := flag.NewFlagSet("bench tap", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "llamatap bench tap: what the tap costs, as ratios of paired runs on this machine\n\nusage: llamatap bench tap [flags]\n\n")
		printFlags(flags.Output(), flags)
	}
	var (
		model  = flags.String("m", "", "GGUF `model` (default: a 1B model with random weights, made on first use)")
		dir    = flags.String("dir", filepath.Join("build", "bench"), "`folder` for that model and for what is recorded meanwhile")
		pairs  = flags.Int("pairs", 8, "at least this many pairs per comparison")
		limit  = flags.Duration("time", 3*time.Minute, "add pairs to a comparison that noise leaves open, for so long")
		tokens = flags.Int("n", 48, "tokens to generate per run")
		prompt = flags.Int("prompt", 40, "repetitions of a line of ten tokens as prompt")
		thread = flags.Int("t", 2, "threads of the model")
		only   = flags.String("only", "", "measure only rows with one of these `parts` in their names, such as drop,DETAILED")
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
	path, err := benchModel(*model, *dir)
	if err != nil {
		return err
	}
	t := bench.Tap{
		Model: bench.Model{
			Path: path, Dir: *dir, Threads: *thread, Tokens: *tokens,
			Prompt: strings.Repeat("\tif err != nil { return nil, err }\n", *prompt),
		},
		OffCost: tap.OffCost, Limits: bench.Limits{MinPairs: *pairs, Time: *limit}, MemoryBound: 256 << 20,
		Table: bench.NewTable(terminal.Out), Progress: func(line string) { fmt.Fprintln(terminal.Err, line) },
	}
	if *only != "" {
		t.Only = strings.Split(*only, ",")
	}
	if *stock {
		t.LlamaBench, t.Completion = stockProgram("llama-bench"), stockProgram("llama-completion")
	}
	t.Table.Section(fmt.Sprintf("%s, %d CPUs, %d threads, prompt of %d lines, %d tokens generated, %s", path, runtime.NumCPU(), *thread, *prompt, *tokens, time.Now().UTC().Format(time.RFC3339)))
	if err := t.Run(ctx); err != nil {
		return err
	}
	if n := t.Table.Failed(); n > 0 {
		return fmt.Errorf("%d gates failed", n)
	}
	return nil
}

// benchModel returns the model to measure with, making the default one where it is missing.
func benchModel(model, dir string) (string, error) {
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
	synth := []string{"-o", path, "--quiet", "--arch", "llama", "--params", "1b", "--type", "q8_0", "--seed", "1"}
	if err := runSynth(synth); err != nil {
		return "", fmt.Errorf("write the benchmark's model %s: %w", filepath.Base(path), err)
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
