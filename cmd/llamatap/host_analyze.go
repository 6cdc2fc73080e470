package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/host"
	"github.com/llamatap/llamatap/inspect/host/chart"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/terminal"
)

const hostAnalyzeHelp = `llamatap host analyze: latencies of block devices, and what goes with them

usage: llamatap host analyze [DIR|FILE] [FLAGS]

Reads what 'llamatap host block' and 'llamatap host system' recorded, or STRAP-LLM's tracepoints.py and system_metrics.py, and tells for each
block device the requests, the latency with its percentiles and the queue; how far the latency goes with waiting, page faults and
pressure; and which processes and threads waited and faulted most. Given a run directory it takes the files from there, and tells
what happened in which phase of the run. docs/HOST_ANALYZE.md says what each figure is.

Latencies are counted in buckets from a power of two to the next, so a percentile is a bound: p99 ≤ 8.19 ms. STRAP-LLM's files have bounds
that are twice as high as they should be; they are recognised and corrected.

Charts are PNG pictures. Of a run directory they are drawn below derived/ in it, else in the folder that STRAP-LLM's analyser draws in.

  llamatap host analyze
  llamatap host analyze llamatap-runs/MODEL/RUN --json | jq '.devices[0].latency_percentiles'
  llamatap host analyze --input tracepoints.jsonl --system-metrics system_metrics.jsonl --lag 3 --no-charts

flags:
`

// The files that STRAP-LLM's recorders write, and the folder that its analyser draws in.
const (
	defaultBlock  = "tracepoints.jsonl"
	defaultSystem = "system_metrics.jsonl"
	defaultProf   = "llm_prof.jsonl"
	defaultCharts = "benchmarks/systems/I-O"
)

// analyzeArguments are what llamatap host analyze was asked for.
type analyzeArguments struct {
	options     host.Options
	percentiles string
	json        bool
	chartsDir   string
	noCharts    bool
	chartTypes  string
	charts      []string // the kinds to draw
	figures     string
	forms       []string // of the files of charts
}

// runHostAnalyze tells what host collectors recorded.
func runHostAnalyze(args []string) error {
	var a analyzeArguments
	flags := a.flags()
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil {
		return err
	}
	if err := a.check(flags, rest); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	report, err := host.Analyze(a.options)
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(terminal.Err, "llamatap: %s\n", w)
	}
	if err := a.write(terminal.Out, report); err != nil || a.noCharts {
		return err
	}
	return a.draw(report, args)
}

// draw draws the charts, and tells of them in the run directory where they lie in it.
func (a *analyzeArguments) draw(report *host.Report, args []string) error {
	paths, err := chart.Draw(report, a.chartsDir, a.charts, a.forms)
	if err != nil {
		return err
	}
	fmt.Fprintf(terminal.Err, "llamatap: %d charts in %s\n", len(paths), a.chartsDir)
	if inside, err := filepath.Rel(report.Run, a.chartsDir); report.Run == "" || err != nil || !filepath.IsLocal(inside) || len(paths) == 0 {
		return nil
	}
	return export.Remember(report.Run, a.chartsDir, version, append([]string{"llamatap", "host", "analyze"}, args...))
}

func (a *analyzeArguments) flags() *flag.FlagSet {
	flags := newFlags("host analyze", hostAnalyzeHelp)
	flags.StringVar(&a.options.Block, "input", "", "`FILE` of block I/O (default: "+defaultBlock+", or that of the run directory)")
	flags.StringVar(&a.options.System, "system-metrics", "", "`FILE` of system metrics (default: "+defaultSystem+" where there is one, or that of the run directory)")
	flags.StringVar(&a.options.Prof, "prof", "", "`FILE` of events of 'llamatap host prof' (default: "+defaultProf+" where there is one, or that of the run directory)")
	flags.IntVar(&a.options.Top, "top", 0, "tell only of the `N` devices with most requests (0: of all)")
	flags.StringVar(&a.percentiles, "percentiles", "50,95,99", "tell these percentiles, a `LIST` with commas; what goes with the highest is looked for")
	flags.Float64Var(&a.options.Window, "window", 0, "put snapshots together to windows of so many `SECONDS` before they are compared (0: each alone)")
	flags.IntVar(&a.options.Lag, "lag", 0, "move metrics by up to `K` intervals to either side, and find the lag at which the latency goes with them most")
	flags.BoolVar(&a.options.Strap, "strap-buckets", false, "take buckets that have bounds and no slot as STRAP-LLM's, whose bounds are twice as high")
	flags.StringVar(&a.chartsDir, "charts-dir", "", "draw charts into this `FOLDER` (default: "+defaultCharts+", or derived/host of the run directory)")
	flags.StringVar(&a.chartsDir, "output-dir", "", "the same `FOLDER`, as STRAP-LLM's documentation names the flag")
	flags.BoolVar(&a.noCharts, "no-charts", false, "draw no charts")
	flags.StringVar(&a.chartTypes, "chart-types", "all", "draw these charts, a `LIST` with commas: all, or some of "+strings.Join(chart.Types, ", "))
	flags.StringVar(&a.figures, "figures", "png", "draw charts as these `FORMS`, with commas: png, svg, pdf")
	flags.BoolVar(&a.json, "json", false, "write JSON")
	return flags
}

// check tells what is wrong with the arguments, and fills in what was not given.
func (a *analyzeArguments) check(flags *flag.FlagSet, rest []string) error {
	o := &a.options
	var err error
	if o.Percentiles, err = parsePercentiles(a.percentiles); err != nil {
		return err
	}
	if a.charts, err = chart.ParseTypes(a.chartTypes); err != nil {
		return fmt.Errorf("--chart-types: %w", err)
	}
	if a.forms, err = sheet.ParseForms(a.figures); err != nil {
		return fmt.Errorf("--figures: %w", err)
	}
	switch {
	case o.Top < 0:
		return fmt.Errorf("--top %d: use 1 or more, or 0 for all", o.Top)
	case o.Window < 0 || o.Window > 1e6:
		return fmt.Errorf("--window %v: use seconds from 0 to a million", o.Window)
	case o.Lag < 0 || o.Lag > 1000:
		return fmt.Errorf("--lag %d: use 0 to 1000 intervals", o.Lag)
	case len(rest) > 1:
		return fmt.Errorf("%d arguments where at most one run directory belongs; 'llamatap host analyze --help' shows how", len(rest))
	}
	if len(rest) == 0 && o.Block == "" && o.System == "" && o.Prof == "" && !slices.ContainsFunc([]string{defaultBlock, defaultSystem, defaultProf}, there) {
		rest = []string{""} // the newest run
	}
	if len(rest) == 1 {
		if rest[0], err = resolveRun(rest[0]); err != nil {
			return err
		}
		if info, err := os.Stat(rest[0]); err != nil {
			return fmt.Errorf("%s: there is no such file or folder: give a run directory or a file of block I/O", rest[0])
		} else if info.IsDir() {
			a.chartsDir = cmp.Or(a.chartsDir, filepath.Join(rest[0], "derived", "host"))
			return o.InRun(rest[0])
		} else if o.Block != "" {
			return fmt.Errorf("%s and --input %s: give one file of block I/O", rest[0], o.Block)
		}
		o.Block = rest[0]
	}
	o.Block, a.chartsDir = cmp.Or(o.Block, defaultBlock), cmp.Or(a.chartsDir, filepath.FromSlash(defaultCharts))
	o.System, o.Prof = orThere(o.System, defaultSystem), orThere(o.Prof, defaultProf)
	return nil
}

// there reports whether there is something of a name.
func there(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// orThere is a path that was given, or else the usual one where there is such a file.
func orThere(given, usual string) string {
	if given == "" && there(usual) {
		return usual
	}
	return given
}

// parsePercentiles reads a list such as 50,95,99.9.
func parsePercentiles(list string) (all []float64, err error) {
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p > 0 && p <= 100) {
			return nil, fmt.Errorf("--percentiles: %.20q is no percentage above 0 and up to 100: write such as 50,95,99.9", text)
		}
		all = append(all, p)
	}
	if slices.Sort(all); len(all) == 0 || len(all) > 20 {
		return nil, errors.New("--percentiles: write 1 to 20 of them, such as 50,95,99")
	}
	return slices.Compact(all), nil
}

// write writes the report.
func (a *analyzeArguments) write(out io.Writer, report *host.Report) error {
	buffered := bufio.NewWriter(out)
	err := report.WriteText
	if a.json {
		err = func(w io.Writer) error { return writeJSON(w, report) }
	}
	return errors.Join(err(buffered), buffered.Flush())
}
