package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner"
)

// run measures what flags or a script ask for.
func (a *benchArguments) run(f *cli.Flags, args []string) error {
	var server []string
	if at := slices.Index(args, "--"); at >= 0 {
		args, server = args[:at], args[at+1:]
	}
	err := a.parse(f, args)
	switch {
	case errors.Is(err, cli.ErrHelp), errors.Is(err, cli.ErrHelpAll):
		return err
	case err == nil && a.trace.file != "":
		return a.replay(f, server)
	case err == nil && server != nil:
		err = errors.New("-- begins the command of a server, which --trace needs: add --trace FILE")
	}
	var plan *bench.Plan
	if err == nil {
		plan, err = a.plan()
	}
	if err != nil {
		return cli.Wrong(err)
	}
	if err := llama.Init(); err != nil {
		return err
	}
	for _, item := range plan.Items {
		if err := runner.CheckModel(item.Spec.Model); err != nil {
			return err
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	progress, clearProgress := benchProgress()
	c := &bench.Conductor{Plan: plan, Dir: a.dir, Progress: progress}
	environment, done, err := a.open(c)
	if err != nil {
		return err
	}
	visits, failures, runErr := c.Run(ctx, done)
	clearProgress()
	if err := a.close(c); err != nil {
		return err
	}
	return a.report(bench.Rows(plan, visits, environment), environment, failures, runErr)
}

// open makes or opens the files that a benchmark writes and looks around on this machine.
func (a *benchArguments) open(c *bench.Conductor) (environment *bench.Environment, done []bench.Visit, err error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if _, statErr := os.Stat(a.resume); a.resume != "" && statErr == nil {
		if c.Log, environment, done, err = bench.ResumeLog(a.resume, c.Plan); err != nil {
			return nil, nil, err
		}
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	if environment == nil {
		environment = lookAround()
	}
	if path := a.results + a.resume; path != "" && c.Log == nil {
		if c.Log, err = bench.CreateLog(path, c.Plan, environment); err != nil {
			return nil, nil, err
		}
	}
	if a.perToken == "" {
		return environment, done, nil
	}
	c.Tokens, err = os.OpenFile(a.perToken, flags, 0o600)
	return environment, done, err
}

// lookAround describes this machine, this program and its llama.cpp.
func lookAround() *bench.Environment {
	environment := bench.LookAround(stockProgram("llama-bench"))
	environment.Llamatap, environment.Llama = version, llama.Version()
	if in, err := llama.Installed(); err == nil {
		environment.LlamaPath = in.LibDir
	}
	return environment
}

// close closes the files.
func (a *benchArguments) close(c *bench.Conductor) (err error) {
	if c.Log != nil {
		err = c.Log.Close()
	}
	if file, ok := c.Tokens.(io.Closer); ok {
		err = errors.Join(err, file.Close())
	}
	return err
}

// report writes the rows and their ratios, and judges.
func (a *benchArguments) report(rows []bench.Row, environment *bench.Environment, failures []error,
	runErr error) error {
	beside := io.Writer(present.Err)
	if a.form == "md" && a.file == "-" {
		beside = present.Out
	}
	ratios := bench.Ratios(rows)
	if len(rows) > 0 {
		if err := a.write(func(out io.Writer) error { return bench.WriteRows(out, a.form, rows) }); err != nil {
			return err
		}
		if err := a.plot.save(bench.Picture(rows)); err != nil {
			return err
		}
		bench.WriteRatios(beside, ratios)
		fmt.Fprintf(beside, "\n%v\n", environment)
	}
	if runErr != nil {
		return stoppedBench(runErr, a.results+a.resume)
	}
	judgements := bench.JudgeRatios(a.bounds, ratios)
	writeJudgements(beside, judgements)
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return bench.Blame(a.bounds, judgements)
}

// stoppedBench is the error of a benchmark that was stopped: what had been measured is written already.
func stoppedBench(err error, log string) error {
	var cause signalCause
	if !errors.As(err, &cause) && !errors.Is(err, context.Canceled) {
		return err
	}
	remedy := "; --resume FILE makes it resumable"
	if log != "" {
		remedy = "; continue with --resume " + log
	}
	return exitStatus{Code: cause.status(), Err: fmt.Errorf("ended %w before all was measured%s", err, remedy)}
}

func writeJudgements(out io.Writer, judgements []bench.Judgement) {
	for _, j := range judgements {
		fmt.Fprintf(out, "fail if %v: %s %.3f [%.3f, %.3f]: %s\n", j.Bound, j.Test, j.Ratio.Median, j.Ratio.Low,
			j.Ratio.High, j.Verdict)
	}
}

// benchProgress shows on a terminal what is being measured and when all will be; elsewhere nothing. clear takes it
// away.
func benchProgress() (show func(done, all int, next string), clear func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(int, int, string) {}, func() {}
	}
	var bar *progressbar.ProgressBar
	show = func(done, all int, next string) {
		if bar == nil {
			bar = progressbar.NewOptions(all, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(20),
				progressbar.OptionShowCount(),
				progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true),
				progressbar.OptionSetElapsedTime(true))
		}
		bar.Describe(present.Line(next))
		_ = bar.Set(done) // a bar that cannot be drawn is not a failure of the benchmark
	}
	return show, func() {
		if bar != nil {
			_ = bar.Clear()
		}
	}
}
