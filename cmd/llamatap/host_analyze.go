package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/host"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// The files that STRAP-LLM's recorders write, and the folder that its analyser draws in.
const (
	defaultBlock  = "tracepoints.jsonl"
	defaultSystem = "system_metrics.jsonl"
	defaultProf   = "llm_prof.jsonl"
	defaultCharts = "benchmarks/systems/I-O"
)

// analyzeArguments are what llamatap host analyze was asked for.
type analyzeArguments struct {
	reportForm
	flags     *cli.Flags
	options   host.Options
	chartsDir string
	noCharts  bool
	charts    []string // the kinds to draw
	figures   []string // forms of the files of charts
}

func hostAnalyzeCommand() *cli.Command {
	return &cli.Command{
		Name: "analyze", Summary: "latencies of block devices, and what they correlate with",
		Usage: "[RUN|FILE] [flags]", Max: 1,
		Text: `Reads what 'llamatap host block' and 'llamatap host system' recorded, or STRAP-LLM's tracepoints.py and
system_metrics.py, and shows for each block device the requests, the latency with its percentiles and the queue; how
the latency correlates with waiting, page faults and pressure; and which processes and threads waited and faulted
most. Given a run directory it takes the files from there, and shows what happened in which phase of the run.
docs/HOST_ANALYZE.md defines each figure.

Latencies are counted in buckets from a power of two to the next, so a percentile is a bound: p99 ≤ 8.19 ms.
STRAP-LLM's files have bounds that are twice as high as they should be; they are recognised and corrected.

Charts are PNG pictures. Of a run directory they are drawn below derived/ in it, else in the folder that STRAP-LLM's
analyser draws in.

  llamatap host analyze
  llamatap host analyze RUN --json | jq '.devices[0].latency_percentiles'
  llamatap host analyze --input tracepoints.jsonl --system-metrics system_metrics.jsonl --lag 3 --no-charts
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := &analyzeArguments{flags: f}
			a.options.Percentiles, _ = parsePercentiles("50,95,99")
			a.charts, _ = host.ParseChartTypes("all")
			a.figures, _ = sheet.ParseForms("png")
			o := &a.options
			f.Add("--input FILE", &o.Block, "block I/O (default: "+defaultBlock+", or that of the run directory)")
			f.Add("--system-metrics FILE", &o.System,
				"system metrics (default: "+defaultSystem+" where there is one, or that of the run directory)")
			f.Add("--prof FILE", &o.Prof, "events of 'llamatap host prof' (default: "+defaultProf+
				" where there is one, or that of the run directory)")
			f.Add("--top N", &o.Top, "only the N devices with most requests (0: all)")
			f.Add("--percentiles LIST",
				parsed(&o.Percentiles, parsePercentiles),
				"show these percentiles; correlations are those of the highest").Default = "50,95,99"
			f.Add("--window SECONDS", &o.Window,
				"combine snapshots to windows of this length before they are compared (0: each alone)")
			f.Add("--lag K", &o.Lag,
				"shift metrics by up to K intervals to either side, and find the lag with the highest correlation")
			f.Add("--strap-buckets", &o.Strap,
				"take buckets that have bounds and no slot as STRAP-LLM's, whose bounds are twice as high")
			f.Add("--charts-dir FOLDER", &a.chartsDir,
				"draw charts into this folder (default: "+defaultCharts+", or derived/host of the run directory)").
				Deprecated("--output-dir") // as STRAP-LLM's documentation has it
			f.Add("--no-charts", &a.noCharts, "draw no charts")
			f.Add("--chart-types LIST", parsed(&a.charts, host.ParseChartTypes),
				"draw these charts: all, or some of "+strings.Join(host.ChartTypes, ", ")).Default = "all"
			f.Add("--figures LIST", parsed(&a.figures, sheet.ParseForms),
				"draw charts in these formats: png, svg, pdf").Default = "png"
			a.define(f, "text", "json")
			return a.run
		},
	}
}

// run reports what host collectors recorded.
func (a *analyzeArguments) run(args []string) error {
	if err := a.check(args); err != nil {
		return cli.Wrong(err)
	}
	bar := present.NewProgress(progressTerminal(true), "analysing")
	a.options.Progress = bar.Of
	report, err := host.Analyze(a.options)
	bar.Done()
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(present.Err, "llamatap: %s\n", w)
	}
	err = a.writeAs(report, forms{"text": report.WriteText})
	if err != nil || a.noCharts {
		return err
	}
	return a.draw(report)
}

// draw draws the charts, and records them in the run directory where they are in it.
func (a *analyzeArguments) draw(report *host.Report) error {
	paths, err := host.DrawCharts(report, a.chartsDir, a.charts, a.figures)
	if err != nil {
		return fmt.Errorf("%w: choose another folder with --charts-dir; --no-charts draws none", err)
	}
	fmt.Fprintf(present.Err, "llamatap: %s in %s\n", present.Plural(len(paths), "chart"), a.chartsDir)
	if inside, err := filepath.Rel(report.Run, a.chartsDir); report.Run == "" || err != nil ||
		!filepath.IsLocal(inside) || len(paths) == 0 {
		return nil
	}
	return export.Remember(report.Run, a.chartsDir, version,
		append([]string{"llamatap", "host", "analyze"}, a.flags.Raw...))
}

// check refuses invalid arguments, and fills in what was not given.
func (a *analyzeArguments) check(rest []string) (err error) {
	o := &a.options
	switch {
	case o.Top < 0:
		return fmt.Errorf("--top %d: use 1 or more, or 0 for all", o.Top)
	case o.Window < 0 || o.Window > 1e6:
		return fmt.Errorf("--window %v: use seconds from 0 to a million", o.Window)
	case o.Lag < 0 || o.Lag > 1000:
		return fmt.Errorf("--lag %d: use 0 to 1000 intervals", o.Lag)
	}
	if len(rest) == 0 && o.Block == "" && o.System == "" && o.Prof == "" &&
		!slices.ContainsFunc([]string{defaultBlock, defaultSystem, defaultProf}, exists) {
		rest = []string{""} // the newest run
	}
	if len(rest) == 1 {
		if rest[0], err = resolveAny(rest[0]); err != nil {
			return err
		}
		if info, err := os.Stat(rest[0]); err != nil {
			return fmt.Errorf("%s: there is no such file or folder: give a run directory or a file of block I/O",
				rest[0])
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

// exists reports whether a file exists.
func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// orThere is a path that was given, or else the usual one where there is such a file.
func orThere(given, usual string) string {
	if given == "" && exists(usual) {
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
			return nil, fmt.Errorf("%.20q is not a percentage above 0 and up to 100: write such as 50,95,99.9", text)
		}
		all = append(all, p)
	}
	if slices.Sort(all); len(all) == 0 || len(all) > 20 {
		return nil, errors.New("write 1 to 20 of them, such as 50,95,99")
	}
	return slices.Compact(all), nil
}
