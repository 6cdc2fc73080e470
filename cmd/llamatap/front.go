//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/runner"
)

// isFront reports whether a name is one of llama.cpp's programs. A name of their kind that the installation lacks is
// one too, so that the answer says what is missing.
func isFront(name string) bool {
	if strings.HasPrefix(name, "llama-") {
		return true
	}
	_, err := runner.FindProgram(name)
	return err == nil && name != "llamatap"
}

// runFront is a program of llama.cpp: with a --tap-… flag, or its environment variable, under the
// tap, and else the program itself in the place of this process. argv0 is what the user called it by.
func runFront(argv0 string, args []string) error {
	program, err := runner.FindProgram(filepath.Base(argv0))
	if err != nil {
		return err
	}
	tap := &config.Tap{}
	rest, err := tap.Parse(args)
	if err != nil {
		return cli.Wrong(err)
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

// frontNames are llama.cpp's programs; none where llama.cpp is not there.
func frontNames() []string {
	names, _ := runner.ProgramNames()
	return names
}
