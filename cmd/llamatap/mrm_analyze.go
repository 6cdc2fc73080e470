package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/mrm"
	"github.com/llamatap/llamatap/mrm/analyze"
)

const mrmAnalyzeHelp = `llamatap mrm analyze: what follows from sealed runs: metrics, labels, what other memories would do, figures

usage: llamatap mrm analyze [RUN…] [FLAGS]
       llamatap mrm analyze --config FILE [FLAGS]

Computes mrm-trace's metrics of each run, how well its regions suit memory that retains data for a limited time, which could live in which
class of memory (refreshes and writes per day, wear, energy, each with formula and inputs), how that depends on the figures of devices, and draws
figures. All is written to derived/mrm of the run; docs/MRM_DATA.md says what each file holds. With --config it takes all runs of the
experiment, and without a RUN the newest. A run that is contaminated is refused, or left out of an experiment.

  llamatap mrm analyze llamatap-runs/MODEL/RUN
  llamatap mrm analyze RUN --devices mine.yaml --classes pcm,managed --years 3
  llamatap mrm analyze --config experiment.yaml --no-figures

flags:
`

const mrmAggregateHelp = `llamatap mrm aggregate: sealed runs of experiments put together

usage: llamatap mrm aggregate DIR… [FLAGS]

Reads all sealed runs below the folders, in results/MODEL/RUN as in model_id=…/run_id=…, checks each file against its manifest and each
table's version, leaves contaminated runs out, and writes for each cell of the matrix the mean of every metric over its repetitions, with its
95 % interval: Student's t, or Wilson's for the share of runs that have a label. --dataset copies the runs into a dataset partitioned model_id=/run_id=, for DuckDB, Spark and pandas.

  llamatap mrm aggregate results
  llamatap mrm aggregate results --format csv > metrics.csv
  llamatap mrm aggregate results --out aggregate          aggregate.csv, .parquet, .json and figures in a folder
  llamatap mrm aggregate results --dataset dataset

flags:
`

// mrmAnalyzeArguments are what llamatap mrm analyze was asked for.
type mrmAnalyzeArguments struct {
	options           analyze.Options
	config, classes   string
	forms             string
	noFigures, asJSON bool
	listClasses       bool
	highOnce, medOnce float64
	highP99S, medP50S float64
	isGiven           map[string]bool // flags
}

func (a *mrmAnalyzeArguments) flags() *flag.FlagSet {
	flags := newFlags("mrm analyze", mrmAnalyzeHelp)
	t := memtrace.DefaultThresholds()
	flags.StringVar(&a.config, "config", "", "analyse all runs of the experiment of this `FILE`")
	flags.StringVar(&a.options.Devices, "devices", "", "`FILE` with further classes of memory")
	flags.StringVar(&a.classes, "classes", "", "only these classes of memory, a `LIST` with commas (default: all)")
	flags.BoolVar(&a.listClasses, "list-classes", false, "print the classes of memory with the sources of their figures, and end")
	flags.Float64Var(&a.options.Years, "years", 5, "cells must live so many `YEARS`")
	flags.Float64Var(&a.highOnce, "high-write-once", t.HighWriteOnce, "least write-once `RATIO` of high_mrm")
	flags.Float64Var(&a.highP99S, "high-retention", float64(t.HighP99NS)/1e9, "least 99th percentile of the retention of high_mrm, in `SECONDS`")
	flags.Float64Var(&a.medOnce, "medium-write-once", t.MediumWriteOnce, "least write-once `RATIO` of medium_mrm")
	flags.Float64Var(&a.medP50S, "medium-retention", float64(t.MediumP50NS)/1e9, "least median of the retention of medium_mrm, in `SECONDS`")
	flags.StringVar(&a.forms, "figures", "png,svg", "draw figures as these `FORMS`, with commas: png, svg, pdf")
	flags.BoolVar(&a.noFigures, "no-figures", false, "draw no figures")
	flags.BoolVar(&a.options.Contaminated, "contaminated", false, "analyse contaminated runs too")
	flags.BoolVar(&a.asJSON, "json", false, "write what was found as JSON instead of as tables")
	return flags
}

// check tells what is wrong with the arguments, and finishes the options.
func (a *mrmAnalyzeArguments) check(rest []string) (err error) {
	o := &a.options
	if !a.noFigures {
		if o.Forms, err = sheet.ParseForms(a.forms); err != nil {
			return fmt.Errorf("--figures: %w", err)
		}
	}
	for id := range strings.SplitSeq(a.classes, ",") {
		if id = strings.TrimSpace(id); id != "" {
			o.Classes = append(o.Classes, id)
		}
	}
	o.Thresholds = memtrace.Thresholds{
		HighWriteOnce: a.highOnce, MediumWriteOnce: a.medOnce, HighP99NS: int64(a.highP99S * 1e9), MediumP50NS: int64(a.medP50S * 1e9),
	}
	ratio := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case !(o.Years > 0 && o.Years <= 1e6):
		return fmt.Errorf("--years %v: use a number above 0 and up to a million", o.Years)
	case !ratio(a.highOnce) || !ratio(a.medOnce):
		return errors.New("--high-write-once and --medium-write-once: use ratios from 0 to 1")
	case !(a.highP99S >= 0 && a.highP99S <= 1e9 && a.medP50S >= 0 && a.medP50S <= 1e9):
		return errors.New("--high-retention and --medium-retention: use seconds from 0 to a thousand million")
	case a.listClasses:
		return nil
	case a.config != "" && len(rest) > 0:
		return errors.New("give run directories or --config FILE, not both")
	}
	return nil
}

// runMRMAnalyze analyses runs.
func runMRMAnalyze(args []string) error {
	var a mrmAnalyzeArguments
	flags := a.flags()
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil {
		return err
	}
	a.isGiven = map[string]bool{}
	flags.Visit(func(f *flag.Flag) { a.isGiven[f.Name] = true })
	if err := a.check(rest); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	if a.listClasses {
		return a.printClasses()
	}
	if a.config == "" && len(rest) == 0 {
		rest = []string{""} // the newest run
	}
	for i := range rest {
		if rest[i], err = resolveRun(rest[i]); err != nil {
			return err
		}
	}
	a.options.Version, a.options.Command = version, append([]string{"llamatap", "mrm", "analyze"}, args...)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if rest, err = a.runs(rest); err != nil {
		return err
	}
	analyzed := 0
	for _, dir := range rest {
		result, err := analyze.Run(ctx, dir, a.options)
		switch {
		case errors.Is(err, context.Canceled):
			return exitStatus{Code: 130, Err: errors.New("interrupted")}
		case errors.Is(err, analyze.ErrContaminated) && a.config != "":
			fmt.Fprintf(terminal.Err, "llamatap: left out: %v\n", err)
			continue
		case err != nil:
			return err
		}
		analyzed++
		if err := a.tell(result); err != nil {
			return err
		}
	}
	if analyzed == 0 {
		return fmt.Errorf("%s: every one of its %d runs is contaminated and was left out; --contaminated analyses them all the same", a.config, len(rest))
	}
	return nil
}

// runs are the directories to analyse. Thresholds and windows of an experiment are those of its configuration,
// where no flag says otherwise.
func (a *mrmAnalyzeArguments) runs(given []string) ([]string, error) {
	if a.config == "" {
		return given, nil
	}
	c, err := mrm.Load(a.config)
	if err != nil {
		return nil, mrmProblems(err)
	}
	a.configure(&c.Analysis)
	found, err := analyze.Find([]string{c.Output.Dir}, false)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, runs := range [][]analyze.SealedRun{found.Runs, found.Contaminated} {
		for i := range runs {
			if runs[i].Experiment.Name == c.Experiment.Name {
				dirs = append(dirs, runs[i].Dir)
			}
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%s: experiment %s has no sealed run in %s: 'llamatap mrm run --config %s' makes some", a.config, c.Experiment.Name, c.Output.Dir, a.config)
	}
	return dirs, nil
}

// configure takes over what the configuration says and no flag does.
func (a *mrmAnalyzeArguments) configure(c *mrm.Analysis) {
	t := &a.options.Thresholds
	if !a.isGiven["high-write-once"] {
		t.HighWriteOnce = c.Thresholds.HighWriteOnce
	}
	if !a.isGiven["medium-write-once"] {
		t.MediumWriteOnce = c.Thresholds.MediumWriteOnce
	}
	if !a.isGiven["high-retention"] {
		t.HighP99NS = int64(c.Thresholds.HighRetentionS * 1e9)
	}
	if !a.isGiven["medium-retention"] {
		t.MediumP50NS = int64(c.Thresholds.MediumRetentionS * 1e9)
	}
	for _, seconds := range c.WindowsS {
		a.options.Windows = append(a.options.Windows, time.Duration(seconds*1e9))
	}
}

// tell writes what was found.
func (a *mrmAnalyzeArguments) tell(r *analyze.Result) error {
	for _, note := range r.Notes {
		fmt.Fprintf(terminal.Err, "llamatap: %s\n", note)
	}
	var err error
	switch {
	case r.Report == nil: // of samples of mrm-trace
	case a.asJSON:
		err = r.Report.WriteJSON(terminal.Out)
	default:
		terminal.Printf("%s\n", r.Dir)
		err = r.Report.WriteText(terminal.Out)
	}
	fmt.Fprintf(terminal.Err, "llamatap: %d files in %s, computed from the %s\n", len(r.Files), r.Out, map[string]string{"trace": "trace of accesses", "regions": "map of regions and the cache's lives", "samples": "samples that mrm-trace recorded"}[r.From])
	return err
}

// printClasses prints the classes of memory.
func (a *mrmAnalyzeArguments) printClasses() error {
	all, err := analyze.LoadClasses(a.options.Devices)
	if err != nil {
		return err
	}
	some, err := all.Pick(a.options.Classes)
	if err != nil {
		return err
	}
	return writeJSON(terminal.Out, analyze.Classes{Version: all.Version, Sources: all.Sources, Classes: some})
}
