package main

import (
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func resourceCommand() *cli.Command {
	return &cli.Command{
		Name: "resource", Summary: "show where a run's time and bytes went: layers, components, ops, tokens",
		Commands: []*cli.Command{{
			Name: "summary", Summary: "add up the resource events of a run", Max: 1,
			Usage: "[RUN|FILE.jsonl] [--by TABLE] [--format text|json|csv] [-o FILE]",
			Text: `Adds up the resource events of a run that was recorded with --tap-resource-level, finished or live:
time, floating point operations and bytes by phase, component, layer and op; attention against MLP; prefill against
decode; the tensors that took most time with their share of the machine's limits; the time of each token; KV cells,
memory, and losses. What was not measured is left out, and the sums say how much of the time in graphs they cover. An
incomplete last line and unreadable lines are reported with their number and skipped.

--by picks one table, for csv, or for json as one line per row: cell (phase, layer, component and op at once; the
default of csv), phase, component, layer, op, tensor, token.

  llamatap resource summary
  llamatap resource summary RUN --format csv --by token > tokens.csv
  llamatap resource summary RUN --json | jq .components
`,
			Define: func(f *cli.Flags) func([]string) error {
				var form reportForm
				by := ""
				form.define(f, "text", "json", "csv")
				f.Add("--by TABLE", choice(&by, resources.Tables...),
					"only this table: "+strings.Join(resources.Tables, ", "))
				return func(args []string) error {
					path, err := resolveRun(args...)
					switch {
					case err != nil:
						return err
					case form.form == "text" && by != "":
						return cli.Wrongf("--by %s: the text has all tables; add --format csv or --json", by)
					case form.form == "csv" && by == "":
						by = resources.ByCell
					}
					return form.write(func(out io.Writer) error { return writeSummary(out, path, form.form, by) })
				}
			},
		}},
	}
}

// writeSummary reads the events and writes what they sum up to. Tokens are written as they are read, however many
// there are.
func writeSummary(out io.Writer, path, format, by string) error {
	var each func(*resources.TokenRow)
	finish := func(*resources.Report) error { return nil }
	switch {
	case by == resources.ByToken && format == "csv":
		table := resources.NewTokenCSV(out)
		each = func(row *resources.TokenRow) { resources.WriteToken(table, row) }
		finish = func(*resources.Report) error { return table.Close() }
	case by == resources.ByToken:
		lines := jsonLines(out)
		each = func(row *resources.TokenRow) { lines.Encode(row) }
	case by != "" && format == "csv":
		finish = func(r *resources.Report) error { return r.WriteCSV(out, by) }
	case by != "":
		finish = func(r *resources.Report) error { return r.EachRow(by, jsonLines(out).Encode) }
	case format == "json":
		finish = func(r *resources.Report) error { return writeJSON(out, r) }
	default:
		finish = func(r *resources.Report) error { return r.WriteText(out) }
	}
	room := each == nil || !term.IsTerminal(int(os.Stdout.Fd())) // rows of tokens are written meanwhile
	bar := present.NewProgress(progressTerminal(room), "summing up")
	report, err := resources.Summarize(context.Background(), path, each, bar.Of)
	bar.Done()
	if err != nil {
		return err
	}
	return finish(report)
}
