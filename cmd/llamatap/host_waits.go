package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/inspect/host"
	"github.com/llamatap/llamatap/internal/terminal"
)

const hostWaitsHelp = `llamatap host waits: what each token of a run waited for, by tensor

usage: llamatap host waits DIR|FILE.jsonl [-o text|json]

Reads what --tap-host waits recorded: page faults on files and reads of them, each timed from its entry to its return, and put to the token
and phase in which it happened and to the tensor of the model's file. Waits of several threads at once add up; "stalled" is the time in which
at least one waited. docs/HOST.md says what each figure means.

  llamatap run -m model.gguf -p Hello --tap-host waits --tap-cold
  llamatap host waits llamatap-runs/MODEL/RUN
  llamatap host waits RUN -o json | jq '.tensors[0]'

flags:
`

// runHostWaits shows what a run waited for on files.
func runHostWaits(args []string) error {
	flags := newFlags("host waits", hostWaitsHelp)
	form := flags.String("o", "text", "write `FORM`: text or json")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	if !slices.Contains([]string{"text", "json"}, *form) {
		return exitStatus{Code: 2, Err: fmt.Errorf("-o %.40q: use text or json", *form)}
	}
	w, err := host.ReadWaits(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(terminal.Out)
	if *form == "json" {
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)
		err = lines.Encode(w)
	} else {
		err = w.WriteText(out)
	}
	return errors.Join(err, out.Flush())
}
