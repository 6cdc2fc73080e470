package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
)

const memoryHelp = `llamatap memory: how the memory of a run was used

usage: llamatap memory DIR [--by type|region|step|time|symbol|data_symbol|process|phase]
                           [--windows 1ms,100ms,1s] [--top N] [--format text|json|csv] [-o FILE]
       llamatap memory record [flags] -- PROGRAM [ARGUMENTS]     sample any program ('llamatap memory record --help')
       llamatap memory import [flags] FILE…                      take what the program perf has sampled
       llamatap memory mark NAME [--run DIR]                     name what a recorded program does from now on

Reads the accesses that --tap-ledger and --tap-samples recorded, with the table of regions and the lives of cache blocks beside them: by type of
region what was read and written, how long what was written was kept until it was read last, how often bytes were written once, how much
was touched within a time, and for which of it memory of limited retention would do. docs/MEMORY_METRICS.md says what each figure means.
Where samples and the ledger are both there, it says how far they agree. Of samples it tells which functions accessed memory (--by symbol),
which variables were accessed (--by data_symbol), in which processes (--by process), and in which
phases of a recorded program (--by phase).

  llamatap run -p Hello --tap-ledger rows --tap-kv
  llamatap memory llamatap-runs/MODEL/RUN
  llamatap memory RUN --by region --format csv > regions.csv     every region that was accessed
  llamatap memory RUN --by data_symbol                     what samples say of each variable
  llamatap memory RUN --format csv > metrics.csv                 mrm-trace's metrics.csv
  llamatap memory RUN --json | jq .suitability

flags:
`

// topRegions is how many regions a text shows.
const topRegions = 10

// runMemory shows how the memory of a run was used.
func runMemory(args []string) error {
	if len(args) > 0 {
		switch args[0] { // a run directory of such a name is ./record
		case "record":
			return runMemoryRecord(args[1:])
		case "import":
			return runMemoryImport(args[1:])
		case "mark":
			return runMemoryMark(args[1:])
		}
	}
	flags := newFlags("memory", memoryHelp)
	by := flags.String("by", string(memory.ByType), "what a line stands for, `WHAT`: type, region, step (an execution of a graph) or time; of samples symbol (a function), data_symbol (a variable), process or phase")
	var form reportForm
	form.define(flags, "text", "json", "csv")
	list := flags.String("windows", "1ms,100ms,1s", "lengths of the windows that working sets are measured in, `LIST`")
	top := flags.Int("top", topRegions, "show the `N` regions that were accessed most")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	if !slices.Contains(memory.Tables, memory.By(*by)) {
		return exitStatus{Code: 2, Err: fmt.Errorf("--by %q: use type, region, step, time, symbol, data_symbol, process or phase", *by)}
	}
	if err := form.check(); err != nil {
		return err
	}
	if *top < 0 {
		return exitStatus{Code: 2, Err: fmt.Errorf("--top %d: use 0 or more regions", *top)}
	}
	windows, err := parseWindows(*list)
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := memory.Analyze(ctx, path, memory.Options{Windows: windows, Uses: form.form == "json" || usesOf(memory.By(*by))})
	if errors.Is(err, context.Canceled) {
		return exitStatus{Code: 130, Err: errors.New("interrupted")}
	}
	if err != nil {
		return err
	}
	return form.write(func(out io.Writer) error {
		switch form.form {
		case "json":
			return jsonLines(out).Encode(r)
		case "csv":
			return r.WriteCSV(out, memory.By(*by))
		}
		return r.WriteText(out, memory.By(*by), *top)
	})
}

// usesOf tells whether a line stands for what samples are of.
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
			return nil, fmt.Errorf("--windows %q: %q is no length of time: use such as 1ms,100ms,1s", list, text)
		}
		all = append(all, d)
	}
	if len(all) > maxWindows {
		return nil, fmt.Errorf("--windows: %d windows, at most %d can be measured at once", len(all), maxWindows)
	}
	return all, nil
}
