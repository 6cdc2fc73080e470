package main

import (
	"io"

	"github.com/llamatap/llamatap/inspect/host"
	"github.com/llamatap/llamatap/internal/cli"
)

func hostWaitsCommand() *cli.Command {
	return &cli.Command{
		Name: "waits", Summary: "what each token of a run waited for, by tensor",
		Usage: "[RUN|FILE.jsonl] [--json] [-o FILE]", Max: 1,
		Text: `Reads what --tap-host waits recorded: page faults on files and reads of them, each timed from its entry
to its return, and attributed to the token and phase in which it happened and to the tensor of the model's file. Waits
of several threads at once add up; "stalled" is the time in which at least one waited. docs/HOST.md defines each
figure.

  llamatap run -m model.gguf -p Hello --tap-host waits --tap-cold
  llamatap host waits
  llamatap host waits RUN --json | jq '.tensors[0]'
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			form.define(f, "text", "json")
			return func(args []string) error {
				path, err := resolveRun(args...)
				if err != nil {
					return err
				}
				w, err := host.ReadWaits(path)
				if err != nil {
					return err
				}
				return form.writeAs(nil, forms{
					"json": func(out io.Writer) error { return jsonLines(out).Encode(w) },
					"text": w.WriteText,
				})
			}
		},
	}
}
