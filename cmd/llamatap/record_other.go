//go:build !linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/llamatap/llamatap/config"
)

// errNotHere is what every command that records answers on other systems.
var errNotHere = fmt.Errorf("recording needs Linux; captures can be read here: %w", errors.ErrUnsupported)

func runExec([]string) error { return errNotHere }

func runCtl([]string) error { return errNotHere }

func runLinks([]string) error { return errNotHere }

func isFront(string) bool { return false }

func runFront(string, []string) error { return errNotHere }

func printFronts(io.Writer) {}

func resolveTap(tap *config.Tap, _ string) error {
	return tap.Resolve(config.ResolveOptions{})
}

func record(*config.Tap, *exec.Cmd, []string) error { return errNotHere }

func recordModel(*config.Tap, *config.Run, []string, []string, *resumption) error { return errNotHere }
