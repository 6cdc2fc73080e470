//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/cgo/llama"
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
	own, _, err := config.SplitTapArgs(args)
	if err != nil {
		return cli.Wrong(err)
	}
	router, err := route(program, own, rest)
	if err != nil {
		return err
	}
	if router || !tap.Recording() {
		path, argv, env := program.Plain(argv0, rest)
		return fmt.Errorf("start %s: %w", path, syscall.Exec(path, argv, env))
	}
	cmd, err := program.Command(argv0, rest)
	if err != nil {
		return err
	}
	return record(tap, cmd, append([]string{program.Name}, args...))
}

// routerPort is a variable that a router gives its servers.
const routerPort = "LLAMA_SERVER_ROUTER_PORT"

// routedVariable is how this binary, started by a router in the place of a server, starts that server: a command line,
// as JSON, that lacks the server's own arguments.
const routedVariable = "LLAMATAP_ROUTED"

// route prepares the servers of a llama-server that has no model of its own: a router, which starts one for each model.
// It starts /proc/self/exe, with the argument of LLAMA_APP_CMD before all others. Where a loader starts the program,
// the first is the loader, and the second this binary, which records the server by the flags of the tap. router: the
// program computes nothing itself.
func route(program runner.Program, tap, args []string) (router bool, err error) {
	if program.Name != "llama-server" || !program.ByLoader() || os.Getenv(routerPort) != "" {
		return false, nil
	}
	self, err := llama.Self()
	if err != nil {
		return false, err
	}
	file, err := llama.Beside(filepath.Base(self))
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(slices.Concat([]string{self, program.Name}, tap))
	if err != nil {
		return false, err
	}
	folder := os.Getenv("LLAMA_ARG_MODELS_DIR") + os.Getenv("LLAMA_ARG_MODELS_PRESET")
	router = modelArgument(args) == "" && os.Getenv("LLAMA_ARG_MODEL") == "" && (folder != "" ||
		slices.Contains(args, "--models-dir") || slices.Contains(args, "--models-preset"))
	return router, errors.Join(os.Setenv("LLAMA_APP_CMD", file), os.Setenv(routedVariable, string(text)))
}

// startRouted becomes the server that a router started this process for, if one did.
func startRouted(args []string) error {
	text := os.Getenv(routedVariable)
	if text == "" || os.Getenv(routerPort) == "" {
		return nil
	}
	var line []string
	if err := json.Unmarshal([]byte(text), &line); err != nil || len(line) == 0 {
		return fmt.Errorf("%s=%s is not a command line of llamatap: unset it", routedVariable, text)
	}
	if err := errors.Join(os.Unsetenv(routedVariable), os.Unsetenv("LLAMA_APP_CMD")); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", line[0], syscall.Exec(line[0], append(line, args...), os.Environ()))
}

// frontNames are llama.cpp's programs; none where llama.cpp is not there.
func frontNames() []string {
	names, _ := runner.ProgramNames()
	return names
}
