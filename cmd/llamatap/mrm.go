package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/mrm"
)

// mrmFlags are those of the commands that take a configuration.
type mrmFlags struct {
	reportForm
	config  string
	cell    int
	retry   bool
	emit    string
	target  mrm.Target
	options []string
}

func mrmCommand() *cli.Command {
	return &cli.Command{
		Name: "mrm", Summary: "run experiments on how memory is used, and judge them",
		Text: `  llamatap mrm config > experiment.yaml
  llamatap mrm plan --config experiment.yaml
  llamatap mrm run --config experiment.yaml
  llamatap mrm plan --config experiment.yaml --emit slurm --dir /shared/mrm > job.sh
`,
		Commands: []*cli.Command{
			mrmConfigured("validate", "check a configuration, with line and column of what is wrong", "", mrmValidate),
			mrmConfigured("plan", "show the matrix, and the time, disk and memory that it needs",
				"With --emit it writes a job array for a cluster.\n", mrmPlan),
			mrmConfigured("run", "run the cells that have no result yet",
				`Continues where an earlier run was killed: each cell becomes a sealed directory below
output.dir. Ctrl-C ends it after the current cell, a second one at once.
`, mrmRun),
			mrmPrinted("config", "print a configuration with every key", mrm.Reference),
			mrmPrinted("schema", "print the JSON Schema of a configuration", mrm.Schema),
			mrmAnalyzeCommand(), mrmAggregateCommand(), mrmCharacterizeCommand(),
		},
	}
}

// everyCell is what --cell is unless it is given.
const everyCell = math.MinInt

// mrmConfigured is a command that takes a configuration.
func mrmConfigured(name, summary, text string, run func(*mrmFlags) error) *cli.Command {
	return &cli.Command{
		Name: name, Summary: summary, Text: text, Usage: "[--config FILE] [flags]",
		Define: func(f *cli.Flags) func([]string) error {
			a := &mrmFlags{config: mrm.DefaultFile, cell: everyCell}
			f.Add("--config FILE", &a.config, "the experiment")
			switch name {
			case "run":
				f.Add("--cell N", &a.cell, "run this cell alone, counted from 0").Default = ""
				f.Add("--retry", &a.retry, "run cells again whose only run is contaminated")
			case "plan":
				a.define(f, "text", "json")
				f.Add("--emit slurm|k8s", choice(&a.emit, "slurm", "k8s"), "write a job for a cluster")
				job := len(f.List)
				f.Add("--dir DIR", &a.target.Dir, "shared folder in which tasks start (default: this folder)")
				f.Add("--image IMAGE", &a.target.Image, "container that has llamatap")
				f.Add("--module NAME", &a.target.Module, "slurm: environment module to load")
				f.Add("--program PATH", &a.target.Program, "llamatap on the nodes")
				f.Add("--claim NAME", &a.target.Claim, "k8s: claim of the shared volume")
				f.Add("--mount PATH", &a.target.Mount, "k8s: where it is mounted (default: --dir)")
				f.Add("--parallel N", &a.target.Parallel, "most tasks at a time; 0: no limit")
				f.Add("--sbatch OPTION", &a.options,
					"slurm: a further option of sbatch, such as --partition=long; may be given several times")
				for _, flag := range f.List[job:] {
					flag.Group = "With --emit"
				}
			}
			return func([]string) error {
				for _, flag := range f.List {
					if flag.Group != "" && a.emit == "" && f.Given(flag.Names[0]) {
						return cli.Wrongf("%s is of a job: add --emit slurm or k8s", flag.Names[0])
					}
				}
				return mrmProblems(run(a))
			}
		},
	}
}

// mrmPrinted is a command that prints a text.
func mrmPrinted(name, summary string, text func() []byte) *cli.Command {
	return &cli.Command{Name: name, Summary: summary, Define: func(*cli.Flags) func([]string) error {
		return func([]string) error { _, err := present.Out.Write(text()); return err }
	}}
}

// mrmProblems prints what is wrong with a configuration line by line.
func mrmProblems(err error) error {
	var problems *mrm.Problems
	if !errors.As(err, &problems) {
		return err
	}
	lines := strings.Split(problems.Error(), "\n")
	for _, line := range lines[:len(lines)-1] {
		fmt.Fprintf(present.Err, "llamatap: %s\n", line)
	}
	return cli.Wrong(errors.New(lines[len(lines)-1]))
}

// load reads the configuration, and prints what of a file of mrm-trace has no counterpart.
func (f *mrmFlags) load() (*mrm.Config, error) {
	c, err := mrm.Load(f.config)
	if err != nil {
		return nil, err
	}
	for _, note := range c.Notes() {
		fmt.Fprintf(present.Err, "llamatap: %s: %s\n", f.config, note)
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
		_, err = present.Printf("ok       %s: experiment %s, %s\n", f.config, c.Experiment.Name,
			present.Plural(len(cells), "cell"))
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
		return f.write(func(out io.Writer) error { return f.emitJob(out, p) })
	}
	if err := f.writeAs(p.Summary(), forms{"text": p.Write}); err != nil {
		return err
	}
	return p.Check()
}

// emitJob writes a job for a cluster. What this machine lacks, the nodes may have: it is a warning then.
func (f *mrmFlags) emitJob(out io.Writer, p *mrm.Plan) error {
	if err := p.Config.Collects(p.Machine.Missing); err != nil {
		fmt.Fprintf(present.Err, "llamatap: warning: %v\n", err)
	}
	t := f.target
	t.Options = f.options
	if t.Dir == "" {
		var err error
		if t.Dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	t.Config = configFrom(t.Dir, f.config)
	if f.emit == "slurm" {
		return cli.Wrong(p.WriteSlurm(out, t))
	}
	return cli.Wrong(p.WriteK8s(out, t))
}

// configFrom is the path of a configuration from a job's folder, where it lies below that. Another one is to be copied
// there under the path that was given.
func configFrom(dir, config string) string {
	full, err := filepath.Abs(config)
	if err != nil || filepath.IsAbs(config) {
		return config
	}
	if path, err := filepath.Rel(dir, full); err == nil && filepath.IsLocal(path) {
		return path
	}
	return config
}
