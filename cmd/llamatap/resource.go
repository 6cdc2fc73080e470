package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
)

const resourceHelp = `llamatap resource: where a run's time and bytes went

usage: llamatap resource summary DIR|FILE.jsonl [--format text|json|csv] [-o FILE] [--by TABLE]

Adds up the resource events of a run that was recorded with --tap-resource-level, finished or still running: time, floating point
operations and bytes by phase, component, layer and op; attention against MLP; prefill against decode; the tensors that took most time
with their share of what the machine can do; the time of each token; KV cells, memory, and losses. What was not measured is left
out, and the sums say how much of the time in graphs they cover. A last line whose end is not there, and lines that cannot be read,
are told with their number and passed over.

--by picks one table, for csv, or for json as one line per row: cell (phase, layer, component and op at once; csv has it without --by),
phase, component, layer, op, tensor, token.

  llamatap resource summary llamatap-runs/MODEL/RUN
  llamatap resource summary RUN --format csv --by token > tokens.csv
  llamatap resource summary RUN --json | jq .components

flags:
`

// runResource adds up resource events.
func runResource(args []string) error {
	flags := newFlags("resource", resourceHelp)
	var form reportForm
	form.define(flags, "text", "json", "csv")
	by := flags.String("by", "", "only this `TABLE`: "+strings.Join(resources.Tables, ", "))
	rest, err := parseAnyFlags(flags, args)
	switch {
	case err != nil || rest == nil:
		return err
	case len(rest) == 0 || len(rest) > 2 || rest[0] != "summary":
		return exitStatus{Code: 2, Err: fmt.Errorf("unknown %.40q: there is 'llamatap resource summary [RUN]'", strings.Join(rest, " "))}
	}
	dir, err := resolveRun(strings.Join(rest[1:], ""))
	if err != nil {
		return err
	}
	if err := form.check(); err != nil {
		return err
	}
	if err := checkSummary(form.form, by); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	return form.write(func(out io.Writer) error { return writeSummary(out, dir, form.form, *by) })
}

// checkSummary tells what is wrong with the flags, and fills in the table of csv.
func checkSummary(format string, by *string) error {
	switch format {
	case "text":
		if *by != "" {
			return fmt.Errorf("--by %s: the text has all tables; add --format csv or --json", *by)
		}
	case "json":
	case "csv":
		if *by == "" {
			*by = resources.ByCell
		}
	}
	if *by != "" && !slices.Contains(resources.Tables, *by) {
		return fmt.Errorf("--by %.40q: use %s", *by, strings.Join(resources.Tables, ", "))
	}
	return nil
}

// writeSummary reads the events and writes what they sum up to. Tokens are written as they are read, however many
// there are.
func writeSummary(out io.Writer, path, format, by string) error {
	buffered := bufio.NewWriter(out)
	var each func(*resources.TokenRow)
	finish := func(*resources.Report) error { return nil }
	switch {
	case by == resources.ByToken && format == "csv":
		table := csv.NewWriter(buffered)
		resources.WriteTokenHead(table)
		each = func(row *resources.TokenRow) { resources.WriteToken(table, row) }
		finish = func(*resources.Report) error { table.Flush(); return table.Error() }
	case by == resources.ByToken:
		lines := jsonLines(buffered)
		each = func(row *resources.TokenRow) { lines.Encode(row) }
	case by != "" && format == "csv":
		finish = func(r *resources.Report) error { return r.WriteCSV(buffered, by) }
	case by != "":
		finish = func(r *resources.Report) error { return r.EachRow(by, jsonLines(buffered).Encode) }
	case format == "json":
		finish = func(r *resources.Report) error { return writeJSON(buffered, r) }
	default:
		finish = func(r *resources.Report) error { return r.WriteText(buffered) }
	}
	report, err := resources.Summarize(context.Background(), path, each)
	if err != nil {
		return err
	}
	if err := finish(report); err != nil {
		return err
	}
	return buffered.Flush()
}

func jsonLines(out io.Writer) *json.Encoder {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return lines
}
