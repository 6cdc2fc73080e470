package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"github.com/llamatap/llamatap/inspect/resources"
)

const kvHelp = `llamatap kv: what the KV cache of a run held, and for how long

usage: llamatap kv DIR|FILE.parquet [--by sequence|layer|time] [--format text|json|csv] [-o FILE]

Reads the lives of blocks of cells that --tap-kv recorded: how full each cache was over time, how long cells lived, why they ended,
how long nobody had touched them by then, and how much of what prompts needed was there already. docs/KV.md says what each figure means.
A life is that of the cells of one block that one sequence wrote; "censored" are those that had not ended with the run. A block's cells count as
in use from the first to the last of them: record with --tap-kv-block 1 to follow each alone.

  llamatap run -p Hello --tap-kv
  llamatap kv llamatap-runs/MODEL/RUN
  llamatap kv RUN --by layer                 bytes that each layer wrote and read
  llamatap kv RUN --by time --format csv           the occupancy over time, for a spreadsheet
  llamatap kv RUN --json | jq .last.reuse

flags:
`

// timelinePoints is how finely time is cut where it is written as numbers.
const timelinePoints = 200

// runKV shows the lives of the KV cache of a run.
func runKV(args []string) error {
	flags := newFlags("kv", kvHelp)
	by := flags.String("by", string(resources.KVBySequence), "what a line stands for, `WHAT`: sequence, layer or time")
	var form reportForm
	form.define(flags, "text", "json", "csv")
	width := flags.Int("width", 0, "columns of the plot, `N`; default: as many as the terminal has, else 100")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	if !slices.Contains([]resources.KVBy{resources.KVBySequence, resources.KVByLayer, resources.KVByTime}, resources.KVBy(*by)) {
		return exitStatus{Code: 2, Err: fmt.Errorf("--by %q: use sequence, layer or time", *by)}
	}
	if err := form.check(); err != nil {
		return err
	}
	if *width < 0 || *width > 10000 {
		return exitStatus{Code: 2, Err: fmt.Errorf("--width %d: use 1 to 10000 columns, or 0 for those of the terminal", *width)}
	}
	if *width == 0 {
		*width = terminalWidth()
	}
	points := timelinePoints
	if form.form == "text" && resources.KVBy(*by) != resources.KVByTime {
		points = *width
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	k, err := resources.OpenKV(ctx, path, points)
	if errors.Is(err, context.Canceled) {
		return exitStatus{Code: 130, Err: errors.New("interrupted")}
	}
	if err != nil {
		return err
	}
	return form.write(func(out io.Writer) error { return writeKV(out, k, resources.KVBy(*by), form.form, *width) })
}

func writeKV(out io.Writer, k *resources.KV, by resources.KVBy, form string, width int) error {
	switch form {
	case "json":
		return jsonLines(out).Encode(k)
	case "csv":
		return k.WriteCSV(out, by)
	}
	return k.WriteText(out, by, width)
}
