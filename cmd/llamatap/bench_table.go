package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/models"
)

// benchTable is what the table is asked for, and what its sections have in common.
type benchTable struct {
	sections            []string
	names               []string // of models
	time                time.Duration
	format, rows        string
	smoke               bool
	stage               *bench.Stage
	models              map[string]bench.NamedModel
	triad               float64
	memoryBytes, diskBy int64
}

// benchSection is a part of the table.
type benchSection struct {
	name   string
	weight int // share of the time
	title  string
	run    func(*benchTable, context.Context, time.Duration) error
}

// benchSections are the parts in their order.
var benchSections = []benchSection{
	{"machine", 1, "limits of this machine", (*benchTable).runMachine},
	{"stream", 3, "writing a recording", (*benchTable).runStream},
	{"table", 1, "writing and reading tables", (*benchTable).runParquet},
	{"tap", 8, "gates of the tap", (*benchTable).runTap},
	{"levels", 6, "levels of the tap", (*benchTable).runLevels},
	{"growth", 5, "growth of what the tap costs", (*benchTable).runGrowth},
	{"host", 1, "host collectors", (*benchTable).runHost},
}

func isSection(name string) bool {
	return name == "all" || slices.ContainsFunc(benchSections, func(s benchSection) bool { return s.name == name })
}

// runBenchTable measures sections of the table. The section tap alone has flags of its own.
func runBenchTable(args []string) error {
	b := &benchTable{stage: &bench.Stage{}, models: map[string]bench.NamedModel{}, memoryBytes: 4 << 30, diskBy: 256 << 20}
	for len(args) > 0 && isSection(args[0]) {
		b.sections, args = append(b.sections, args[0]), args[1:]
	}
	err := b.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	if err := os.MkdirAll(b.stage.Dir, 0o755); err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	out := io.Writer(terminal.Out)
	if b.format == "json" {
		out = nil
	}
	b.stage.Environment, b.stage.LlamaBench = lookAround(), stockProgram("llama-bench")
	b.stage.Table = bench.NewTable(out)
	b.stage.Progress = func(line string) { fmt.Fprintln(terminal.Err, line) }
	if out != nil {
		fmt.Fprintf(out, "%v\n%s, %d threads\n", b.stage.Environment, b.stage.Environment.Time, b.stage.Threads)
	}
	runErr := b.measure(ctx)
	return b.finish(ctx, runErr)
}

func (b *benchTable) parse(args []string) error {
	flags := flag.NewFlagSet("bench "+strings.Join(b.sections, " "), flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	names := flags.String("models", "6m,125m,1b", "`models` of the sections levels and growth, of 6m, 125m and 1b; the last one is that of tap")
	flags.DurationVar(&b.time, "time", 20*time.Minute, "about `how long` all sections may take together")
	flags.StringVar(&b.stage.Dir, "dir", filepath.Join("build", "bench"), "`folder` for models, which are made on first use, and for what is recorded meanwhile; its disk is the one measured")
	flags.IntVar(&b.stage.Threads, "t", 2, "`threads` of the model")
	flags.StringVar(&b.format, "o", "text", "`form` on stdout: text or json")
	flags.StringVar(&b.rows, "rows", "", "write what levels and growth measured to a `file` that bench compare reads")
	flags.BoolVar(&b.smoke, "smoke", false, "everything once and short, to see that it works")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			terminal.Print("llamatap bench SECTION…: the table against the machine's limits\n\nusage: llamatap bench all|machine|stream|table|tap|levels|growth|host… [flags]\n\n")
			printFlags(terminal.Out, flags)
		}
		return err
	}
	b.names = strings.Split(*names, ",")
	for _, name := range b.names {
		if !slices.Contains([]string{"6m", "125m", "1b"}, name) {
			return fmt.Errorf("-models: there is no %q: give 6m, 125m or 1b; llamatap bench -m FILE measures a model of your own", name)
		}
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; sections come before flags", flags.Arg(0))
	case b.stage.Threads < 1 || b.time <= 0:
		return errors.New("-t and -time must be positive")
	case b.format != "text" && b.format != "json":
		return fmt.Errorf("-o %s: there are text and json", b.format)
	}
	b.stage.Rounds = 30
	if b.smoke {
		b.names, b.time, b.stage.Rounds, b.memoryBytes, b.diskBy = []string{"6m"}, time.Second, 1, 24<<20, 4<<20
	}
	return nil
}

// measure runs the sections, each for its share of the time that is left.
func (b *benchTable) measure(ctx context.Context) error {
	var todo []benchSection
	weights := 0
	for _, s := range benchSections {
		if slices.Contains(b.sections, s.name) || slices.Contains(b.sections, "all") {
			todo, weights = append(todo, s), weights+s.weight
		}
	}
	end := time.Now().Add(b.time)
	for _, s := range todo {
		b.stage.Table.Section(s.title)
		left := max(time.Until(end), 0)
		if err := s.run(b, ctx, left*time.Duration(s.weight)/time.Duration(weights)); err != nil {
			return fmt.Errorf("section %s: %w", s.name, err)
		}
		weights -= s.weight
	}
	return nil
}

// finish writes what there is, also when it was stopped.
func (b *benchTable) finish(ctx context.Context, runErr error) error {
	var err error
	if b.format == "json" {
		err = b.stage.Table.WriteJSON(terminal.Out, b.stage.Environment)
	}
	if err == nil && b.rows != "" && len(b.stage.Rows) > 0 {
		err = b.stage.WriteRows(b.rows)
	}
	if cause := context.Cause(ctx); cause != nil && runErr != nil {
		return stoppedBench(cause, "")
	}
	if runErr != nil || err != nil {
		return errors.Join(runErr, err)
	}
	if b.smoke {
		return nil // it says that everything works, not how fast
	}
	return failedGates(b.stage.Table)
}

func failedGates(t *bench.Table) error {
	if n := t.Failed(); n > 0 {
		return fmt.Errorf("%d gates failed", n)
	}
	return nil
}

// model is a model by name, made where it is missing.
func (b *benchTable) model(ctx context.Context, name string) (bench.NamedModel, error) {
	if m, ok := b.models[name]; ok {
		return m, nil
	}
	path, err := tableModel(ctx, name, b.stage.Dir)
	b.models[name] = bench.NamedModel{Name: name, Path: path}
	return b.models[name], err
}

// tableModel is the file of a model of the table in a folder: 6m is the embedded one, the others have random weights.
func tableModel(ctx context.Context, name, dir string) (string, error) {
	if name == "6m" {
		path := filepath.Join(dir, models.DefaultName)
		if info, err := os.Stat(path); err == nil && info.Size() == int64(len(models.Default)) {
			return path, nil
		}
		return path, os.WriteFile(path, models.Default, 0o644)
	}
	self, err := llama.Self()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "llama-"+name+"-q8_0.gguf")
	return path, bench.Synthesize(ctx, self, path, "--arch", "llama", "--params", name, "--type", "q8_0", "--seed", "1")
}

func (b *benchTable) runMachine(ctx context.Context, share time.Duration) error {
	s := b.stage
	triad, err := bench.MachineLimits{Dir: s.Dir, Time: share * 2 / 3, MemoryBytes: b.memoryBytes, DiskBytes: b.diskBy, Table: s.Table, Progress: s.Progress}.Run(ctx)
	if err != nil {
		return err
	}
	b.triad = triad
	return bench.Codecs{Dir: s.Dir, Time: share / 3, Threads: s.Threads, Table: s.Table, Progress: s.Progress}.Run(ctx)
}

func (b *benchTable) runTap(ctx context.Context, share time.Duration) error {
	m, err := b.model(ctx, b.names[len(b.names)-1])
	if err != nil {
		return err
	}
	const comparisons = 7
	t := bench.Tap{
		Model:   bench.Model{Path: m.Path, Threads: b.stage.Threads, Prompt: strings.Repeat("\tif err != nil { return nil, err }\n", 10), Tokens: 48},
		OffCost: tap.OffCost, Limits: bench.Limits{MinPairs: 8, Time: share / comparisons}, MemoryBound: 256 << 20,
		Table: b.stage.Table, Progress: b.stage.Progress, LlamaBench: b.stage.LlamaBench, Completion: stockProgram("llama-completion"),
	}
	if b.smoke {
		t.Limits, t.Model.Tokens = bench.Limits{MinPairs: 1}, 8
	}
	return t.Run(ctx)
}

// runParquet writes and reads rows in memory, eight row groups each time.
func (b *benchTable) runParquet(ctx context.Context, share time.Duration) error {
	p := bench.Parquet{Time: share, Rounds: b.stage.Rounds, Rows: 1 << 23, Table: b.stage.Table, Progress: b.stage.Progress}
	if b.smoke {
		p.Rows = 1 << 16
	}
	return p.Run(ctx)
}

func (b *benchTable) runHost(ctx context.Context, share time.Duration) error {
	if b.smoke {
		share = time.Second
	}
	return bench.HostCost{Dir: b.stage.Dir, Time: min(share, 40*time.Second), Table: b.stage.Table, Progress: b.stage.Progress}.Run(ctx)
}

// runLevels measures the levels; the memory first, where no section did.
func (b *benchTable) runLevels(ctx context.Context, share time.Duration) error {
	s := b.stage
	if b.triad == 0 {
		var err error
		quiet := bench.MachineLimits{Dir: s.Dir, Time: share / 30, MemoryBytes: b.memoryBytes, DiskBytes: 1 << 20, Table: bench.NewTable(nil), Progress: s.Progress}
		if b.triad, err = quiet.Run(ctx); err != nil {
			return err
		}
	}
	l := bench.Levels{Stage: s, Prompt: 128, Gen: 32, Triad: b.triad, Time: share}
	if b.smoke {
		l.Prompt, l.Gen = 8, 2
	}
	for _, name := range b.names {
		m, err := b.model(ctx, name)
		if err != nil {
			return err
		}
		l.Models = append(l.Models, m)
	}
	return l.Run(ctx)
}
