package main

import (
	"io"

	"github.com/llamatap/llamatap/inspect/host"
)

const hostWaitsHelp = `llamatap host waits: what each token of a run waited for, by tensor

usage: llamatap host waits DIR|FILE.jsonl [--json] [-o FILE]

Reads what --tap-host waits recorded: page faults on files and reads of them, each timed from its entry to its return, and put to the token
and phase in which it happened and to the tensor of the model's file. Waits of several threads at once add up; "stalled" is the time in which
at least one waited. docs/HOST.md says what each figure means.

  llamatap run -m model.gguf -p Hello --tap-host waits --tap-cold
  llamatap host waits llamatap-runs/MODEL/RUN
  llamatap host waits RUN --json | jq '.tensors[0]'

flags:
`

// runHostWaits shows what a run waited for on files.
func runHostWaits(args []string) error {
	flags := newFlags("host waits", hostWaitsHelp)
	var form reportForm
	form.define(flags, "text", "json")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	if err := form.check(); err != nil {
		return err
	}
	w, err := host.ReadWaits(path)
	if err != nil {
		return err
	}
	if form.form == "json" {
		return form.write(func(out io.Writer) error { return jsonLines(out).Encode(w) })
	}
	return form.write(w.WriteText)
}
