//go:build linux

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/runner/host"
)

// isFront tells whether a name is one of llama.cpp's programs. A name of their kind that the installation lacks is
// one too, so that the answer says what is missing.
func isFront(name string) bool {
	if strings.HasPrefix(name, "llama-") {
		return true
	}
	_, err := host.Find(name)
	return err == nil && name != "llamatap"
}

// runFront is a program of llama.cpp: with a --tap-… flag, or what stands for one in the environment, under the
// tap, and else the program itself in the place of this process. argv0 is what the user called it by.
func runFront(argv0 string, args []string) error {
	program, err := host.Find(filepath.Base(argv0))
	if err != nil {
		return err
	}
	tap := &config.Tap{}
	rest, err := tap.Parse(args)
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	if err := resolveTap(tap, modelArgument(rest)); err != nil {
		return err
	}
	if !tap.Recording() {
		path, argv, env := program.Plain(argv0, rest)
		return fmt.Errorf("start %s: %w", path, syscall.Exec(path, argv, env))
	}
	cmd, err := program.Command(argv0, rest)
	if err != nil {
		return err
	}
	return record(tap, cmd, append([]string{program.Name}, args...))
}

// printFronts lists llama.cpp's programs in the help; none where llama.cpp is not there.
func printFronts(out io.Writer) {
	names, err := host.Names()
	if err != nil || len(names) == 0 {
		return
	}
	fmt.Fprint(out, "\nllama.cpp's own programs, unmodified, with all their arguments; a --tap-… flag anywhere among these\nrecords (--tap-config FILE and LLAMATAP_… variables too), and without one nothing is preloaded:\n\n")
	line := " "
	for _, name := range names {
		if len(line)+1+len(name) > 100 {
			fmt.Fprintln(out, line)
			line = " "
		}
		line += " " + name
	}
	fmt.Fprintf(out, "%s\n\nThe --tap-… flags: 'llamatap exec --help'.\n", line)
}
