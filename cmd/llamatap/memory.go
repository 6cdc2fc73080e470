package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func memoryCommand() *cli.Command {
	return &cli.Command{
		Name: "memory", Summary: "show how memory was used: what was read, written, kept, reused; suitability for MRM",
		Max: 1,
		Usage: "[RUN] [--by TABLE] [--windows 1ms,100ms,1s] [--top N] [--format text|json|csv] [-o FILE] [--plot " +
			"FILE]\n" +
			"record [flags] -- PROGRAM [ARGUMENTS]\nimport [flags] FILE…\nmark NAME [--run DIR]",
		Text: `Reads the accesses that --tap-ledger and --tap-samples recorded, with the table of regions and the
lives of cache blocks: by type of region what was read and written, how long what was written was kept until it was
read last, how often bytes were written once, how much was touched within a time, and for which of it memory of
limited retention would do. docs/MEMORY_METRICS.md defines each figure. Where samples and the ledger are both there,
it reports how far they agree. Samples also show which functions accessed memory (--by symbol), which variables were
accessed (--by data_symbol), in which processes (--by process), and in which phases of a recorded program (--by
phase).

  llamatap run -p Hello --tap-ledger rows --tap-kv
  llamatap memory
  llamatap memory RUN --by region --format csv -o regions.csv    every region that was accessed
  llamatap memory RUN --by data_symbol                           samples of each variable
  llamatap memory RUN --format csv -o metrics.csv                mrm-trace's metrics.csv
  llamatap memory RUN --plot memory.svg                          bytes by type of region, as a picture
  llamatap memory RUN --json | jq .suitability
`,
		Commands: []*cli.Command{memoryRecordCommand(), memoryImportCommand(), memoryMarkCommand()},
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			by, top := string(memory.ByType), 10
			windows := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second}
			var tables []string
			for _, table := range memory.Tables {
				tables = append(tables, string(table))
			}
			f.Add("--by "+strings.Join(tables, "|"), choice(&by, tables...),
				"what a line is about; step is an execution of a graph; of samples symbol is a function, data_symbol "+
					"a variable").Default = by
			form.define(f, "text", "json", "csv")
			var plot plotFile
			plot.define(f)
			f.Add("--windows LIST", parsed(&windows, parseWindows),
				"lengths of the windows that working sets are measured in").Default = "1ms,100ms,1s"
			f.Add("--top N", &top, "show the N regions that were accessed most")
			return func(args []string) error {
				path, err := resolveRun(args...)
				if err != nil {
					return err
				}
				if top < 0 {
					return cli.Wrongf("--top %d: use 0 or more regions", top)
				}
				ctx, stop := untilInterrupt()
				defer stop()
				bar := present.NewProgress(progressTerminal(true), "analysing")
				r, err := memory.Analyze(ctx, path, memory.Options{Windows: windows, Progress: bar.Of,
					Uses: form.form == "json" || usesOf(memory.By(by))})
				bar.Done()
				if err != nil {
					return err
				}
				err = form.writeAs(nil, forms{
					"json": func(out io.Writer) error { return jsonLines(out).Encode(r) },
					"csv":  func(out io.Writer) error { return r.WriteCSV(out, memory.By(by)) },
					"text": func(out io.Writer) error { return r.WriteText(out, memory.By(by), top) },
				})
				return errors.Join(err, plot.saveRun(r.Picture(), path))
			}
		},
	}
}

// usesOf reports whether a table counts uses of samples.
func usesOf(by memory.By) bool {
	return by == memory.BySymbol || by == memory.ByDataSymbol || by == memory.ByProcess
}

// maxWindows bounds how many windows may be asked for.
const maxWindows = 16

// parseWindows reads lengths such as 1ms,100ms,1s.
func parseWindows(list string) ([]time.Duration, error) {
	var all []time.Duration
	for text := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("%q is not a length of time: use such as 1ms,100ms,1s", text)
		}
		all = append(all, d)
	}
	if len(all) > maxWindows {
		return nil, fmt.Errorf("%d windows, at most %d can be measured at once", len(all), maxWindows)
	}
	return all, nil
}
