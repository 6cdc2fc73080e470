package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/mrm"
	"github.com/llamatap/llamatap/mrm/analyze"
)

// mrmAnalyzeArguments are what llamatap mrm analyze was asked for.
type mrmAnalyzeArguments struct {
	reportForm
	flags             *cli.Flags
	options           analyze.Options
	config            string
	noFigures         bool
	listClasses       bool
	highOnce, medOnce float64
	highP99S, medP50S float64
}

func mrmAnalyzeCommand() *cli.Command {
	return &cli.Command{
		Name: "analyze", Summary: "compute metrics, labels, what other memories would do, and figures from sealed runs",
		Usage: "[RUN…] [flags]\n--config FILE [flags]", Max: -1,
		Text: `Computes mrm-trace's metrics of each run, how well its regions suit memory that retains data for a
limited time, which could live in which class of memory (refreshes and writes per day, wear, energy, each with formula
and inputs), how that depends on the figures of devices, and draws figures. All is written to derived/mrm of the run;
docs/MRM_DATA.md describes each file. With --config it takes all runs of the experiment, and without a RUN the newest.
A contaminated run is refused, or left out of an experiment.

  llamatap mrm analyze
  llamatap mrm analyze RUN --devices mine.yaml --classes pcm,managed --years 3
  llamatap mrm analyze --config experiment.yaml --no-figures
`,
		Define: func(f *cli.Flags) func([]string) error {
			t := memtrace.DefaultThresholds()
			a := &mrmAnalyzeArguments{
				flags: f, highOnce: t.HighWriteOnce, highP99S: float64(t.HighP99NS) / 1e9, medOnce: t.MediumWriteOnce,
				medP50S: float64(t.MediumP50NS) / 1e9,
			}
			a.options.Years = 5
			a.options.Forms, _ = sheet.ParseForms(defaultFigures)
			f.Add("--config FILE", &a.config, "analyze all runs of the experiment of this file")
			f.Add("--devices FILE", &a.options.Devices, "file with further classes of memory")
			f.Add("--classes LIST", setEach(func(id string) error {
				if id != "" {
					a.options.Classes = append(a.options.Classes, id)
				}
				return nil
			}), "only these classes of memory (default: all)")
			f.Add("--list-classes", &a.listClasses,
				"print the classes of memory with the sources of their figures, and end")
			f.Add("--years YEARS", &a.options.Years, "lifetime that cells must reach")
			f.Add("--high-write-once RATIO", &a.highOnce, "least write-once ratio of high_mrm")
			f.Add("--high-retention SECONDS", &a.highP99S, "least 99th percentile of the retention of high_mrm")
			f.Add("--medium-write-once RATIO", &a.medOnce, "least write-once ratio of medium_mrm")
			f.Add("--medium-retention SECONDS", &a.medP50S, "least median of the retention of medium_mrm")
			defineFigures(f, &a.options.Forms, &a.noFigures)
			f.Add("--contaminated", &a.options.Contaminated, "analyze contaminated runs too")
			a.define(f, "text", "json")
			return func(args []string) error {
				return a.write(func(out io.Writer) error { return a.run(out, args) })
			}
		},
	}
}

const defaultFigures = "png,svg"

// defineFigures adds the flags of the formats of figures.
func defineFigures(f *cli.Flags, forms *[]string, none *bool) {
	f.Add("--figures LIST", parsed(forms, sheet.ParseForms),
		"draw figures in these formats: png, svg, pdf").Default = defaultFigures
	f.Add("--no-figures", none, "draw no figures")
}

// check refuses invalid arguments, and finishes the options.
func (a *mrmAnalyzeArguments) check(rest []string) error {
	o := &a.options
	if a.noFigures {
		o.Forms = nil
	}
	o.Thresholds = memtrace.Thresholds{
		HighWriteOnce: a.highOnce, MediumWriteOnce: a.medOnce, HighP99NS: int64(a.highP99S * 1e9),
		MediumP50NS: int64(a.medP50S * 1e9),
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

// run analyzes runs.
func (a *mrmAnalyzeArguments) run(out io.Writer, rest []string) error {
	err := a.check(rest)
	if err != nil {
		return cli.Wrong(err)
	}
	if a.listClasses {
		return a.printClasses(out)
	}
	if a.config == "" && len(rest) == 0 {
		rest = []string{""} // the newest run
	}
	if rest, err = a.runs(rest); err != nil {
		return err
	}
	for i := range rest {
		if rest[i], err = resolveAny(rest[i]); err != nil {
			return err
		}
	}
	a.options.Version, a.options.Command = version, append([]string{"llamatap", "mrm", "analyze"}, a.flags.Raw...)
	ctx, stop := untilInterrupt()
	defer stop()
	analyzed := 0
	for _, dir := range rest {
		bar := present.NewProgress(progressTerminal(true), "analysing")
		a.options.Progress = bar.Of
		result, err := analyze.Run(ctx, dir, a.options)
		bar.Done()
		switch {
		case errors.Is(err, analyze.ErrContaminated) && a.config != "":
			fmt.Fprintf(present.Err, "llamatap: left out: %v\n", err)
			continue
		case err != nil:
			return err
		}
		analyzed++
		if err := a.print(out, result); err != nil {
			return err
		}
	}
	if analyzed == 0 {
		return fmt.Errorf(
			"%s: every run is contaminated and was left out (%d); --contaminated analyzes them all the same",
			a.config, len(rest))
	}
	return nil
}

// runs returns the directories to analyse. Thresholds and windows of an experiment are those of its configuration,
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
		return nil, fmt.Errorf("%s: experiment %s has no sealed run in %s: 'llamatap mrm run --config %s' makes some",
			a.config, c.Experiment.Name, c.Output.Dir, a.config)
	}
	return dirs, nil
}

// configure takes over what the configuration says and no flag does.
func (a *mrmAnalyzeArguments) configure(c *mrm.Analysis) {
	t := &a.options.Thresholds
	if !a.flags.Given("--high-write-once") {
		t.HighWriteOnce = c.Thresholds.HighWriteOnce
	}
	if !a.flags.Given("--medium-write-once") {
		t.MediumWriteOnce = c.Thresholds.MediumWriteOnce
	}
	if !a.flags.Given("--high-retention") {
		t.HighP99NS = int64(c.Thresholds.HighRetentionS * 1e9)
	}
	if !a.flags.Given("--medium-retention") {
		t.MediumP50NS = int64(c.Thresholds.MediumRetentionS * 1e9)
	}
	for _, seconds := range c.WindowsS {
		a.options.Windows = append(a.options.Windows, time.Duration(seconds*1e9))
	}
}

// print writes what was found.
func (a *mrmAnalyzeArguments) print(out io.Writer, r *analyze.Result) error {
	for _, note := range r.Notes {
		fmt.Fprintf(present.Err, "llamatap: %s\n", note)
	}
	var err error
	switch {
	case r.Report == nil: // of samples of mrm-trace
	case a.form == "json":
		err = r.Report.WriteJSON(out)
	default:
		fmt.Fprintf(out, "%s\n", r.Dir)
		err = r.Report.WriteText(out)
	}
	fmt.Fprintf(present.Err, "llamatap: %s in %s, computed from the %s\n", present.Plural(len(r.Files), "file"), r.Out,
		map[string]string{"trace": "trace of accesses", "regions": "map of regions and the cache's lives",
			"samples": "samples that mrm-trace recorded"}[r.From])
	return err
}

// printClasses prints the classes of memory.
func (a *mrmAnalyzeArguments) printClasses(out io.Writer) error {
	all, err := analyze.LoadClasses(a.options.Devices)
	if err != nil {
		return err
	}
	some, err := all.Pick(a.options.Classes)
	if err != nil {
		return err
	}
	return writeJSON(out, analyze.Classes{Version: all.Version, Sources: all.Sources, Classes: some})
}
