package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	runreport "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report", Summary: "say why a run was slow: the principal cause, its share, the evidence",
		Max:   1,
		Usage: "[RUN] [--brief] [--format text|md|json] [-o FILE]",
		Text: `Judges a run by what it recorded: CPU starvation, page faults, memory bandwidth, small batches, the
recording itself, prompts that were processed again, a full KV cache, sampling. The verdict names the cause with the
largest share of the time, the evidence and what would remove it. Below it, all causes are listed with their shares; of
one that could not be judged, the flag that records what it needs. docs/REPORT.md defines each share.

  llamatap run -p Hello --tap-resource-level MINIMAL --tap-kv --tap-host system,waits
  llamatap report
  llamatap report RUN --brief                the verdict alone
  llamatap report RUN --json | jq -r .verdict
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			brief := false
			f.Add("--brief", &brief, "only the verdict")
			form.define(f, "text", "md", "json")
			return func(args []string) error {
				path, err := resolveRun(args...)
				switch {
				case err != nil:
					return err
				case brief && form.form != "text":
					return cli.Wrongf("--brief is text: drop it, or --format %s", form.form)
				}
				ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
				defer stop()
				bar := present.NewProgress(progressTerminal(true), "reading")
				made, err := runreport.Make(ctx, path, bar.Of)
				bar.Done()
				if err != nil {
					return err
				}
				return form.write(func(out io.Writer) error {
					switch {
					case brief:
						_, err := fmt.Fprintln(out, made.Verdict)
						return err
					case form.form == "json":
						return writeJSON(out, made)
					case form.form == "md":
						return made.WriteMarkdown(out)
					}
					return made.WriteText(out)
				})
			}
		},
	}
}
