package main

import (
	"io"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/store/rundir"
)

func requestsCommand() *cli.Command {
	return &cli.Command{
		Name: "requests", Max: 1,
		Summary: "show the requests of a recorded server, and why prompts were processed again",
		Usage:   "[RUN] [--last N] [--format text|json|csv] [-o FILE]",
		Text: `Reads the requests that --tap-requests recorded: when each came, which slot it got, what of its prompt
was cached, how long it waited, its time to first token, the gaps between its tokens, why it ended, and why a part of
its prompt was computed although it had been computed before. docs/REQUESTS.md defines each figure and names its source.

  llama-server -m model.gguf -np 4 --tap-requests
  llamatap requests
  llamatap requests RUN --json | jq '.totals.again'
  llamatap requests RUN --format csv -o requests.csv
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			last := 100
			form.define(f, "text", "json", "csv")
			f.Add("--last N", &last, "requests to show as text, the newest").Default = "100"
			return func(args []string) error {
				path, err := resolveRun(args...)
				if err != nil {
					return err
				}
				if last < 0 {
					return cli.Wrongf("--last %d: use 0 or more", last)
				}
				ctx, stop := untilInterrupt()
				defer stop()
				r, err := resources.OpenRequests(ctx, path)
				if err == nil {
					err = r.ReadEnergy(ctx, path)
				}
				if err != nil {
					return err
				}
				return form.writeAs(nil, forms{
					"json": func(out io.Writer) error {
						return writeJSON(out, map[string]any{"requests": r.Values(), "totals": r.Totals(),
							"energy": r.Energy, "given_back": r.GivenBack})
					},
					"csv":  r.WriteCSV,
					"text": func(out io.Writer) error { return r.WriteText(out, tokenTexts(path), last) },
				})
			}
		},
	}
}

// tokenTexts are the texts of tokens that a run recorded, by id: none in a run without tensors, or of which texts were
// left out.
func tokenTexts(dir string) func(id int64) string {
	texts := map[int64]string{}
	if f, err := rundir.OpenFile(filepath.Join(dir, rundir.TokensName)); err == nil {
		defer f.Close()
		// What is damaged leaves ids in the report; verify reports it.
		_, _ = tensors.ReadTokens(f, func(t *tensors.Token) error {
			texts[int64(t.ID)] = t.Text
			return nil
		})
	}
	return func(id int64) string { return texts[id] }
}
