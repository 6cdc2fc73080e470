package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner"
)

func benchTapCommand() *cli.Command {
	return &cli.Command{
		Name:    "tap",
		Summary: "measure what the tap costs, as ratios of paired runs on this machine, and judge it by gates",
		Usage:   "[flags]",
		Define: func(f *cli.Flags) func([]string) error {
			t := bench.Tap{
				Model:  bench.Model{Dir: filepath.Join("build", "bench"), Threads: 2, Tokens: 48},
				Limits: bench.Limits{MinPairs: 8, Time: 3 * time.Minute}, Table: bench.NewTable(present.Out),
				Progress: func(line string) { fmt.Fprintln(present.Err, line) },
			}
			prompt, stock := 40, true
			f.Add("-m, --model FILE", &t.Model.Path,
				"GGUF model (default: a 1B model with random weights, made on first use)")
			f.Add("--dir DIR", &t.Model.Dir, "folder for that model and for what is recorded meanwhile")
			f.Add("--pairs N", &t.Limits.MinPairs, "at least this many pairs per comparison")
			f.Add("--time DURATION", &t.Limits.Time, "add pairs to a comparison that noise leaves open, for so long")
			f.Add("-n, --n-gen N", &t.Model.Tokens, "tokens to generate per run")
			f.Add("--prompt N", &prompt, "repetitions of a line of ten tokens as prompt")
			f.Add("-t, --threads N", &t.Model.Threads, "threads of the model")
			f.Add("--only LIST", wordList(&t.Only),
				"measure only rows with one of these in their names, such as drop,DETAILED")
			f.Add("--stock", &stock, "compare with llama-bench and llama-completion (default: on)").
				Off = []string{"--no-stock"}
			return func([]string) error {
				if t.Limits.MinPairs < 1 || t.Model.Tokens < 2 || prompt < 1 || t.Model.Threads < 1 {
					return cli.Wrongf("--pairs, -n, --prompt and -t must be positive, -n at least 2")
				}
				if stock {
					t.LlamaBench, t.Completion = stockProgram("llama-bench"), stockProgram("llama-completion")
				}
				t.Model.Prompt = strings.Repeat("\tif err != nil { return nil, err }\n", prompt)
				return runBenchTap(t, prompt)
			}
		},
	}
}

// runBenchTap measures what the tap costs and judges it by gates.
func runBenchTap(t bench.Tap, prompt int) (err error) {
	ctx, stop := untilInterrupt(syscall.SIGTERM)
	defer stop()
	m := &t.Model
	if err := runner.CheckModel(m.Path); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return cli.Wrong(err)
	}
	if m.Path, err = benchModel(m.Path, m.Dir); err != nil {
		return err
	}
	t.Table.Section(fmt.Sprintf("%s, %d CPUs, %d threads, prompt of %d lines, %d tokens generated, %s",
		m.Path, runtime.NumCPU(), m.Threads, prompt, m.Tokens, time.Now().UTC().Format(time.RFC3339)))
	if err := t.Run(ctx); err != nil {
		return err
	}
	if n := t.Table.Failed(); n > 0 {
		return fmt.Errorf("%s failed", present.Plural(n, "gate"))
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
	if err := runSynth(synthArgs{out: path, quiet: true, arch: "llama", params: "1b", dtype: "q8_0",
		seed: 1}); err != nil {
		return "", fmt.Errorf("write the benchmark's model %s: %w", filepath.Base(path), err)
	}
	return path, nil
}

// stockProgram is the path that starts one of llama.cpp's own programs, "" where it is not there.
func stockProgram(name string) string {
	program, err := runner.FindProgram(name)
	if err != nil {
		return ""
	}
	return program.Starter()
}
