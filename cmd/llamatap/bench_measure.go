package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner"
)

// runBenchMeasure is a measuring process: one test of one model, described as JSON or in a file of it, and its
// times as JSON lines on stdout. With a recorder it is the collector, and the model runs in a child, as with run.
func runBenchMeasure(args []string) error {
	recorders := &config.Tap{}
	rest, err := recorders.Parse(args)
	if err != nil {
		return cli.Wrong(err)
	}
	if len(rest) != 1 {
		return cli.Wrongf("usage: llamatap bench measure [--tap-…] FILE, which llamatap bench starts itself")
	}
	spec, err := readSpec(rest[0])
	if err != nil {
		return cli.Wrongf("read what to measure: %w", err)
	}
	recorded := tap.Recording()
	if recorded && len(rest) < len(args) {
		return errTapped
	}
	if recorded || len(rest) == len(args) {
		return measureModel(spec, recorded)
	}
	if err := resolveTap(recorders, spec.Model); err != nil {
		return err
	}
	if !recorders.Recording() {
		return measureModel(spec, false)
	}
	self, err := llama.Self()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "bench", "measure", rest[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return record(recorders, cmd, append([]string{"bench", "measure"}, args...))
}

// maxSpec bounds the file of a specification in bytes: it holds prompts.
const maxSpec = 64 << 20

// readSpec reads what to measure from JSON or from a file of it, for a prompt may be longer than an argument.
func readSpec(argument string) (spec bench.Spec, err error) {
	text := []byte(argument)
	if !strings.HasPrefix(argument, "{") {
		if text, err = cli.ReadFile(argument, maxSpec); err != nil {
			return spec, err
		}
	}
	return spec, json.Unmarshal(text, &spec)
}

// measureModel is what the process that holds the model does.
func measureModel(spec bench.Spec, recorded bool) error {
	if recorded {
		defer tap.Detach()
	}
	if err := runner.CheckModel(spec.Model); err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	err := bench.Measure(ctx, spec, present.Out)
	var cause signalCause
	if errors.As(err, &cause) {
		return exitStatus{Code: cause.status()}
	}
	return err
}
