package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/mrm"
)

const mrmHelp = `llamatap mrm: experiments on how the memory of a model is used

usage: llamatap mrm validate [--config FILE]
usage: llamatap mrm plan [--config FILE] [--emit slurm|k8s]
usage: llamatap mrm run [--config FILE] [--cell N] [--retry]
usage: llamatap mrm config
usage: llamatap mrm schema
usage: llamatap mrm analyze RUN… | --config FILE
usage: llamatap mrm aggregate DIR…

validate checks a configuration; what is wrong is told with line and column. plan shows the matrix, and the time, disk and memory that it
needs, before anything runs; with --emit it writes a job array for a cluster. run runs the cells that have no result yet, and goes on where
an earlier one was killed: each becomes a sealed directory below output.dir. Ctrl-C ends it behind the cell under way, a second one at once.
config prints a configuration with every key, schema its JSON Schema. analyze computes what follows from sealed runs, with figures, and
aggregate puts them together; each has a help of its own.

  llamatap mrm config > experiment.yaml
  llamatap mrm plan --config experiment.yaml
  llamatap mrm run --config experiment.yaml
  llamatap mrm plan --config experiment.yaml --emit slurm --dir /shared/mrm > job.sh

flags:
`

// mrmFlags are those of all subcommands.
type mrmFlags struct {
	config  string
	cell    int
	retry   bool
	emit    string
	target  mrm.Target
	asJSON  bool
	options stringList
}

// stringList is a flag that may be given several times.
type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, " ") }
func (l *stringList) Set(s string) error { *l = append(*l, s); return nil }

func (f *mrmFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.config, "config", mrm.DefaultFile, "the experiment's `FILE`")
	flags.IntVar(&f.cell, "cell", -1, "run this cell `N` alone, counted from 0")
	flags.BoolVar(&f.retry, "retry", false, "run cells again whose only run is contaminated")
	flags.BoolVar(&f.asJSON, "json", false, "write the plan as JSON")
	flags.StringVar(&f.emit, "emit", "", "write a job for `slurm|k8s`")
	flags.StringVar(&f.target.Dir, "dir", "", "with --emit: shared `DIR` in which tasks start; here without it")
	flags.StringVar(&f.target.Image, "image", "", "with --emit: `IMAGE` of the container that has llamatap")
	flags.StringVar(&f.target.Module, "module", "", "with --emit slurm: environment module `NAME` to load")
	flags.StringVar(&f.target.Program, "program", "", "with --emit: `PATH` of llamatap on the nodes")
	flags.StringVar(&f.target.Claim, "claim", "", "with --emit k8s: `NAME` of the claim of the shared volume")
	flags.StringVar(&f.target.Mount, "mount", "", "with --emit k8s: `PATH` at which it is mounted; --dir without it")
	flags.IntVar(&f.target.Parallel, "parallel", 0, "with --emit: most tasks `N` at a time; 0: no limit")
	flags.Var(&f.options, "sbatch", "with --emit slurm: a further `OPTION` of sbatch, such as --partition=long; may be given several times")
}

// mrmCommands are the subcommands that take a configuration.
var mrmCommands = map[string]func(*mrmFlags) error{
	"validate": mrmValidate, "plan": mrmPlan, "run": mrmRun,
	"config": func(*mrmFlags) error { _, err := terminal.Out.Write(mrm.Reference()); return err },
	"schema": func(*mrmFlags) error { _, err := terminal.Out.Write(mrm.Schema()); return err },
}

// runMRM runs a subcommand of experiments.
func runMRM(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "analyze":
			return runMRMAnalyze(args[1:])
		case "aggregate":
			return runMRMAggregate(args[1:])
		}
	}
	flags := newFlags("mrm", mrmHelp)
	var f mrmFlags
	f.register(flags)
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil {
		return err
	}
	if len(rest) == 0 {
		return exitStatus{Code: 2, Err: errors.New("say what to do: llamatap mrm validate, plan, run, analyze or aggregate; 'llamatap mrm --help' tells more")}
	}
	run, ok := mrmCommands[rest[0]]
	if !ok || len(rest) > 1 {
		return exitStatus{Code: 2, Err: fmt.Errorf("unknown %.40q: there are validate, plan, run, analyze, aggregate, config and schema", strings.Join(rest, " "))}
	}
	if err := mrmTakes(flags, rest[0], f.emit); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	return mrmProblems(run(&f))
}

// mrmTakes refuses flags that a subcommand has no use for: what they ask for would not be done.
func mrmTakes(flags *flag.FlagSet, command, emit string) (err error) {
	taken := map[string][]string{
		"validate": {"config"}, "plan": {"config", "json", "emit"}, "run": {"config", "cell", "retry"},
	}[command]
	flags.Visit(func(given *flag.Flag) {
		ofJob := strings.HasPrefix(given.Usage, "with --emit")
		switch {
		case slices.Contains(taken, given.Name), ofJob && command == "plan" && emit != "":
		case ofJob && command == "plan":
			err = fmt.Errorf("--%s is of a job: add --emit slurm or k8s", given.Name)
		default:
			err = fmt.Errorf("--%s is not for llamatap mrm %s; 'llamatap mrm --help' tells what is", given.Name, command)
		}
	})
	return err
}

// mrmProblems prints what is wrong with a configuration line by line.
func mrmProblems(err error) error {
	var problems *mrm.Problems
	if !errors.As(err, &problems) {
		return err
	}
	lines := strings.Split(problems.Error(), "\n")
	for _, line := range lines[:len(lines)-1] {
		fmt.Fprintf(terminal.Err, "llamatap: %s\n", line)
	}
	return exitStatus{Code: 2, Err: errors.New(lines[len(lines)-1])}
}

// load reads the configuration, and prints what of a file of mrm-trace has no counterpart.
func (f *mrmFlags) load() (*mrm.Config, error) {
	c, err := mrm.Load(f.config)
	if err != nil {
		return nil, err
	}
	for _, note := range c.Notes() {
		fmt.Fprintf(terminal.Err, "llamatap: %s: %s\n", f.config, note)
	}
	return c, nil
}

func mrmValidate(f *mrmFlags) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	sources, err := c.Sources()
	if err != nil {
		return err
	}
	cells, err := c.Cells(sources)
	if err == nil {
		err = c.Collects(mrm.MissingCollectors())
	}
	if err == nil {
		_, err = terminal.Printf("ok       %s: experiment %s, %d cells\n", f.config, c.Experiment.Name, len(cells))
	}
	return err
}

func mrmPlan(f *mrmFlags) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	p, err := mrm.NewPlan(c, mrm.ThisMachine(os.DirFS("/"), c.Output.Dir))
	if err != nil {
		return err
	}
	if f.emit != "" {
		return f.emitJob(terminal.Out, p)
	}
	if f.asJSON {
		err = writeJSON(terminal.Out, p.Summary())
	} else {
		err = p.Write(terminal.Out)
	}
	if err != nil {
		return err
	}
	return p.Check()
}

// emitJob writes a job for a cluster. What this machine lacks, the nodes may have: it is a warning then.
func (f *mrmFlags) emitJob(out io.Writer, p *mrm.Plan) error {
	if err := p.Config.Collects(p.Machine.Missing); err != nil {
		fmt.Fprintf(terminal.Err, "llamatap: warning: %v\n", err)
	}
	t := f.target
	t.Config, t.Options = f.config, f.options
	if t.Dir == "" {
		var err error
		if t.Dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	var err error
	switch f.emit {
	case "slurm":
		err = p.WriteSlurm(out, t)
	case "k8s":
		err = p.WriteK8s(out, t)
	default:
		err = fmt.Errorf("--emit %.40q: write slurm or k8s", f.emit)
	}
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	return nil
}
