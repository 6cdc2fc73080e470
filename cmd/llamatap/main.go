// Command llamatap runs GGUF models with llama.cpp and records what happens inside.
//
// This file is the door: it picks the subcommand, or the program of llama.cpp that this process is named after, and
// turns its error into one line and an exit status. Each subcommand has a file of its own.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/terminal"
)

// command is one subcommand. run gets the arguments after its name and reports failure as an error; an exitStatus
// sets the process's exit status.
type command struct {
	name    string
	summary string
	run     func(args []string) error
}

// commands lists every subcommand in the order in which help shows them.
func commands() []command {
	return []command{
		{"run", "generate text with a model, and record what you ask for", runRun},
		{"demo", "show the main job on the embedded model", runDemo},
		{"exec", "run any llama.cpp program under the tap", runExec},
		{"install-links", "make links named after llama.cpp's programs that lead here", runLinks},
		{"ctl", "look at a run that goes on, and change what it captures", runCtl},
		{"inspect", "show what a capture holds: layers, tokens, shapes, bytes, losses, statistics", runInspect},
		{"runs", "list the runs that were recorded, newest first", runRuns},
		{"cat", "write one captured tensor as text, npy or JSON", runCat},
		{"diff", "say how the tensors of two captures differ, by layer, tensor or token", runDiff},
		{"export", "write captured tensors for NumPy, PyTorch, pandas, DuckDB, or as a dataset to train on", runExport},
		{"kv", "show what the KV cache of a run held, for how long, and what was reused", runKV},
		{"memory", "say how memory was used: what was read and written, kept, reused; suitability for MRM", runMemory},
		{"resource", "say where a run's time and bytes went: layers, components, ops, tokens", runResource},
		{"host", "record what the kernel does: disks, waiting, faults, system calls; and analyze it", runHost},
		{"mrm", "run experiments on how memory is used, and judge them", runMRM},
		{"serve", "show runs over HTTP: events while they come, summaries, metrics for Prometheus", runServe},
		{"verify", "check a capture: sums, index against stream, tokens, losses", runVerify},
		{"doctor", "say what this machine lets llamatap record, and what is missing", runDoctor},
		{"bench", "measure models as llama-bench does, and what the tap costs", runBench},
		{"synth", "make a GGUF model with random weights, of any size and architecture", runSynth},
		{"completion", "print a completion script for bash, zsh or fish", runCompletion},
		{"man", "write the manual pages", runMan},
	}
}

// exitStatus is an error that ends the process with Code. A nil Err means that everything worth saying has been said.
type exitStatus struct {
	Code int
	Err  error
}

func (e exitStatus) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e exitStatus) Unwrap() error { return e.Err }

func main() { os.Exit(start(os.Args)) }

// start does what the name of this process says: under the name of a program of llama.cpp it is that program.
func start(argv []string) int {
	if len(argv) > 0 && isFront(filepath.Base(argv[0])) {
		return report(runFront(argv[0], argv[1:]))
	}
	status := dispatch(argv[min(1, len(argv)):])
	if err := terminal.Failed(); err != nil && status == 0 {
		return report(fmt.Errorf("print: %w", err))
	}
	return status
}

// dispatch runs one subcommand and returns the exit status: 0 done, 1 failed, 2 used wrongly.
func dispatch(args []string) int {
	if len(args) == 0 {
		printUsage(terminal.Err)
		return 2
	}
	switch args[0] {
	case "help", "-h", "--help":
		if len(args) > 1 && args[0] == "help" {
			return dispatch(append(slices.Clone(args[1:]), "--help"))
		}
		printUsage(terminal.Out)
		return 0
	case "version", "--version":
		terminal.Printf("llamatap %s, llama.cpp %s\n", version, cmp.Or(llama.Version(), "is not built in"))
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return report(c.run(args[1:]))
		}
	}
	if isFront(args[0]) {
		return report(runFront(args[0], args[1:]))
	}
	names := []string{"help", "version"}
	for _, c := range commands() {
		names = append(names, c.name)
	}
	suggestion := ";"
	if near := config.Nearest(args[0], names); near != "" {
		suggestion = fmt.Sprintf(": did you mean %q?", near)
	}
	fmt.Fprintf(terminal.Err, "llamatap: unknown command %q%s 'llamatap help' lists the commands\n", args[0], suggestion)
	return 2
}

// report prints err as one line and returns the exit status that it asks for.
func report(err error) int {
	if err == nil {
		return 0
	}
	var status exitStatus
	if !errors.As(err, &status) {
		status = exitStatus{Code: 1, Err: err}
	}
	if status.Err != nil {
		fmt.Fprintf(terminal.Err, "llamatap: %v\n", status.Err)
	}
	return status.Code
}

func printUsage(out io.Writer) {
	fmt.Fprint(out, "llamatap: llama.cpp with a tap\n\nusage: llamatap COMMAND [ARGUMENTS]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(out, "  %-14s %s\n", c.name, c.summary)
	}
	fmt.Fprint(out, "\n'llamatap COMMAND --help' tells more of one; 'llamatap version' which one this is.\n")
	printFronts(out)
}
