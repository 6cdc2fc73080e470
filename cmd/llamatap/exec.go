//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/runner"
)

// runExec runs any dynamically linked llama.cpp program under the tap.
func runExec(args []string) error {
	if len(args) == 0 {
		return cli.Wrong(errNoProgram)
	}
	if args[0] == "-h" || args[0] == "--help" {
		return cli.ErrHelp
	}
	if args[0] == "--help-all" {
		return cli.ErrHelpAll
	}
	own, program, err := cutProgram(args)
	if err != nil {
		return cli.Wrong(err)
	}
	tap := &config.Tap{}
	rest, err := tap.Parse(own)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unexpected argument %q before the program: write llamatap exec [--tap-…] -- PROGRAM",
			rest[0])
	}
	if err != nil {
		return cli.Wrong(err)
	}
	if err := resolveTap(tap, modelArgument(program)); err != nil {
		return err
	}
	router := false
	if front, err := runner.FindProgram(program[0]); err == nil {
		if router, err = route(front, own, program[1:]); err != nil {
			return err
		}
	}
	if router || !tap.Recording() {
		return plainly(program)
	}
	cmd, err := runner.Command(program[0], program[1:])
	if err != nil {
		return asShell(err)
	}
	return record(tap, cmd, append([]string{"exec"}, args...))
}

// asShell gives an error of starting a program the exit status that a shell gives it.
func asShell(err error) error {
	switch {
	case errors.Is(err, runner.ErrNotFound), errors.Is(err, syscall.ENOENT):
		return exitStatus{Code: 127, Err: err}
	case errors.Is(err, runner.ErrCannotRun), errors.Is(err, runner.ErrCannotTap), errors.Is(err, syscall.EACCES),
		errors.Is(err, syscall.ENOEXEC):
		return exitStatus{Code: 126, Err: err}
	}
	return err
}

// cutProgram separates the tap's flags from the program, at -- or at the first argument that is not a flag of the tap.
func cutProgram(args []string) (own, program []string, err error) {
	at := slices.Index(args, "--")
	if at < 0 {
		tap, rest, err := config.SplitTapArgs(args)
		switch {
		case err != nil:
		case len(rest) == 0:
			err = errNoProgram
		case strings.HasPrefix(rest[0], "-"):
			err = fmt.Errorf(
				"unknown flag %s: only flags of the tap stand before the program; write llamatap exec [--tap-…] -- "+
					"PROGRAM [ARGUMENTS]", rest[0])
		}
		return tap, rest, err
	}
	if at == len(args)-1 {
		return nil, nil, errNoProgram
	}
	return args[:at], args[at+1:], nil
}

var errNoProgram = errors.New("no program is given: write llamatap exec [--tap-…] -- PROGRAM [ARGUMENTS]")

// plainly becomes the program: without a recorder nothing is preloaded and no process remains.
func plainly(program []string) error {
	path, args, env, err := runner.PlainCommand(program[0], program[1:])
	if err != nil {
		return asShell(err)
	}
	return asShell(fmt.Errorf("start %s: %w", path, syscall.Exec(path, args, env)))
}
