// Command llamatap runs GGUF models with llama.cpp and records what happens inside.
//
// This file picks the command, or the program of llama.cpp that this process is named after, and turns its error into
// one line and an exit status. Each command has a file of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// program is the table of all commands, in the order of help.
func program() *cli.Command {
	return &cli.Command{
		Name: "llamatap", Summary: "llama.cpp with a tap", Usage: "COMMAND [ARGUMENTS]",
		Text: "Runs GGUF models, and records their tensors, operations, KV cache and memory accesses.\n",
		Footer: func() string {
			return "'llamatap help COMMAND' describes a command, 'llamatap help recording' the flags that record, " +
				"'llamatap help formats' the files of a recording.\n" + frontsText()
		},
		Commands: []*cli.Command{
			runCommand(), execCommand(), demoCommand(), runsCommand(), pushCommand(), reportCommand(), inspectCommand(),
			analyzeCommand(), unembedCommand(), vectorCommand(), saeCommand(), causalCommand(), compareModelsCommand(),
			catCommand(), diffCommand(), exportCommand(), verifyCommand(),
			kvCommand(), requestsCommand(), expertsCommand(), resourceCommand(), memoryCommand(), hostCommand(),
			attachCommand(),
			benchCommand(), mrmCommand(), topCommand(), serveCommand(), ctlCommand(), doctorCommand(),
			synthCommand(), linksCommand(), versionCommand(), completionCommand(), manCommand(), completeCommand(),
			recordingTopic(),
			formatsTopic(),
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Summary: "print the versions of llamatap and of the llama.cpp that it uses",
		Define: func(*cli.Flags) func([]string) error {
			return func([]string) error {
				_, err := present.Printf("llamatap %s, llama.cpp %s\n", version,
					cmp.Or(llama.Version(), "is not built in"))
				return err
			}
		},
	}
}

// exitStatus is an error that ends the process with Code. A nil Err prints nothing.
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
	if err := startRouted(argv[min(1, len(argv)):]); err != nil {
		return report(err)
	}
	if len(argv) > 0 && isFront(filepath.Base(argv[0])) {
		return report(runFront(argv[0], argv[1:]))
	}
	status := dispatch(argv[min(1, len(argv)):])
	if err := present.Failed(); err != nil && status == 0 {
		return report(fmt.Errorf("print: %w", err))
	}
	return status
}

// dispatch runs one command and returns the exit status: 0 done, 1 failed, 2 used wrongly.
func dispatch(args []string) int {
	if len(args) == 0 {
		_ = program().Run([]string{"help"}, present.Err)
		return 2
	}
	return report(call(args...))
}

// call runs the command that the arguments name.
func call(args ...string) error {
	switch {
	case args[0] == "--version":
		args[0] = "version"
	case args[0] == "help" && len(args) > 1 && isFront(args[1]):
		return runFront(args[1], []string{"--help"})
	}
	if table := program(); !strings.HasPrefix(args[0], "-") {
		if found, _, _ := table.Find(args); found == table && isFront(args[0]) {
			return runFront(args[0], args[1:])
		}
	}
	return program().Run(args, present.Out)
}

// report prints err as one line and returns the exit status that it asks for.
func report(err error) int {
	if err == nil {
		return 0
	}
	var status exitStatus
	var wrong *cli.UsageError
	switch {
	case errors.As(err, &status):
	case errors.As(err, &wrong):
		status = exitStatus{Code: 2, Err: err}
	case errors.Is(err, context.Canceled):
		status = exitStatus{Code: 130, Err: errors.New("interrupted")}
	default:
		status = exitStatus{Code: 1, Err: err}
	}
	if status.Err != nil {
		fmt.Fprintf(present.Err, "llamatap: %v\n", status.Err)
	}
	return status.Code
}
