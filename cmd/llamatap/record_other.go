//go:build !linux

package main

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
)

// errNotHere is what every command that records answers on other systems.
var errNotHere = fmt.Errorf("recording needs Linux; captures can be read here: %w", errors.ErrUnsupported)

func runExec([]string) error { return errNotHere }

func installLinks(string, bool) error { return errNotHere }

func isFront(string) bool { return false }

func runFront(string, []string) error { return errNotHere }

func startRouted([]string) error { return nil }

func frontNames() []string { return nil }

func resolveTap(tap *config.Tap, _ string) error {
	return tap.Resolve(config.ResolveOptions{})
}

func record(*config.Tap, *exec.Cmd, []string) error { return errNotHere }

func recordModel(*config.Tap, *config.Run, []string, []string, *resumption) error { return errNotHere }

func ctlCommand() *cli.Command {
	return &cli.Command{
		Name: "ctl", Summary: "look at a live run, and change what it captures (Linux)", Raw: true,
		Define: func(*cli.Flags) func([]string) error { return func([]string) error { return errNotHere } },
	}
}
