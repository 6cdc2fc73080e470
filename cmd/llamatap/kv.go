package main

import (
	"errors"
	"io"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// timelinePoints is the number of points in time where occupancy is written as numbers.
const timelinePoints = 200

func kvCommand() *cli.Command {
	return &cli.Command{
		Name: "kv", Summary: "show what the KV cache of a run held, for how long, and what was reused", Max: 1,
		Usage: "[RUN|FILE.parquet] [--by sequence|layer|time] [--format text|json|csv] [-o FILE] [--plot FILE]",
		Text: `Reads the lives of blocks of cells that --tap-kv recorded: how full each cache was over time, how long
cells lived, why they ended, how long they had been untouched by then, and how much of what prompts needed was there
already. docs/KV.md defines each figure. A life is that of the cells of one block that one sequence wrote; "censored"
are those that had not ended with the run. A block's cells count as in use from the first to the last of them: record
with --tap-kv-block 1 to follow each alone.

  llamatap run -p Hello --tap-kv
  llamatap kv
  llamatap kv RUN --by layer                 bytes that each layer wrote and read
  llamatap kv RUN --by time --format csv     the occupancy over time, for a spreadsheet
  llamatap kv RUN --plot kv.png              the same as a picture
  llamatap kv RUN --json | jq .last.reuse
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			by, width := string(resources.KVBySequence), 0
			f.Add("--by sequence|layer|time", choice(&by, "sequence", "layer", "time"), "what a line is about").
				Default = by
			form.define(f, "text", "json", "csv")
			var plot plotFile
			plot.define(f)
			f.Add("--width N", &width, "columns of the plot (default: those of the terminal, or 100)")
			return func(args []string) error {
				path, err := resolveRun(args...)
				if err != nil {
					return err
				}
				if width < 0 || width > 10000 {
					return cli.Wrongf("--width %d: use 1 to 10000 columns, or 0 for those of the terminal", width)
				}
				if width == 0 {
					width = present.Columns(100)
				}
				points := timelinePoints
				if plot == "" && form.form == "text" && by != string(resources.KVByTime) {
					points = width
				}
				ctx, stop := untilInterrupt()
				defer stop()
				bar := present.NewProgress(progressTerminal(true), "reading")
				k, err := resources.OpenKV(ctx, path, points, bar.Of)
				bar.Done()
				if err != nil {
					return err
				}
				err = form.writeAs(nil, forms{
					"json": func(out io.Writer) error { return jsonLines(out).Encode(k) },
					"csv":  func(out io.Writer) error { return k.WriteCSV(out, resources.KVBy(by)) },
					"text": func(out io.Writer) error { return k.WriteText(out, resources.KVBy(by), width) },
				})
				return errors.Join(err, plot.saveRun(k.Picture(), path))
			}
		},
	}
}
