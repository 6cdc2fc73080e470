package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
	bar := present.NewProgress(progressTerminal(true), "")
	c := &bench.Conductor{Plan: plan, Dir: a.dir, Progress: func(done, all int, next string) {
		bar.Of(int64(done), int64(all))
		bar.Describe(present.Line(fmt.Sprintf("%d/%d %s", done, all, next)))
	}}
	environment, done, err := a.open(c)
	if err != nil {
		return err
	}
	visits, failures, runErr := c.Run(ctx, done)
	bar.Done()
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
		remedy := "--resume FILE makes it resumable"
		if log := a.results + a.resume; log != "" {
			remedy = "continue with --resume " + log
		}
		return stopped(runErr, fmt.Sprintf("ended %v before all was measured; %s", runErr, remedy))
	}
	judgements := bench.JudgeRatios(a.bounds, ratios)
	writeJudgements(beside, judgements)
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return bench.Blame(a.bounds, judgements)
}

// stopped is the error of a benchmark or a replay that a signal stopped: what had been done is written already.
func stopped(err error, text string) error {
	var cause signalCause
	if !errors.As(err, &cause) && !errors.Is(err, context.Canceled) {
		return err
	}
	return exitStatus{Code: cause.status(), Err: errors.New(text)}
}

func writeJudgements(out io.Writer, judgements []bench.Judgement) {
	for _, j := range judgements {
		fmt.Fprintf(out, "fail if %v: %s %.3f [%.3f, %.3f]: %s\n", j.Bound, j.Test, j.Ratio.Median, j.Ratio.Low,
			j.Ratio.High, j.Verdict)
	}
}
