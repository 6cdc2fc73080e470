package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/mrm"
)

// mrmRun runs an experiment.
func mrmRun(f *mrmFlags) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	ctx, enough, stop := untilTwice()
	defer stop()
	show := &mrmShow{out: present.Err}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		show.bar = func(of int) *progressbar.ProgressBar {
			return progressbar.NewOptions(of, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(20),
				progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
		}
	}
	e := &mrm.Experiment{Config: c, Version: version, Retry: f.retry, Enough: enough, Report: show.event}
	var cells []int
	if f.cell != everyCell {
		cells = []int{f.cell}
	}
	outcome, err := e.Run(ctx, cells)
	show.end(outcome)
	var cause signalCause
	switch {
	case errors.As(err, &cause):
		fmt.Fprintln(present.Err,
			"llamatap: interrupted; nothing is kept of the cell under way, and what was sealed stays")
		return exitStatus{Code: cause.status()}
	case err == nil && outcome.Left > 0:
		fmt.Fprintf(present.Err, "llamatap: stopped, with %s left; run it again to continue\n",
			present.Plural(outcome.Left, "cell"))
		return exitStatus{Code: 128 + int(syscall.SIGINT)}
	case errors.Is(err, mrm.ErrCell):
		return cli.Wrong(err)
	}
	return err
}

// untilTwice returns a channel that the first SIGINT or SIGTERM closes, and a context that the second one ends.
func untilTwice() (ctx context.Context, enough chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	enough = make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		first := true
		for s := range signals {
			if first {
				first = false
				close(enough)
				fmt.Fprintln(present.Err, "\nllamatap: this cell is the last one; once more ends it now")
				continue
			}
			cancel(signalCause{s.(syscall.Signal)})
		}
	}()
	return ctx, enough, func() { signal.Stop(signals); close(signals); cancel(nil) }
}

// mrmShow shows the progress of an experiment: with a bar on a terminal, else a line per cell.
type mrmShow struct {
	out  io.Writer
	bar  func(of int) *progressbar.ProgressBar // nil: no terminal
	live *progressbar.ProgressBar
}

func (s *mrmShow) event(e mrm.Event) {
	where := fmt.Sprintf("[%d/%d] %s", e.Number, e.Of, e.Cell.Name())
	switch e.Kind {
	case mrm.CellBegun, mrm.CellStep:
		s.progress(e)
	case mrm.CellRemoved:
		s.line("%s: what was left of it was removed, it had not been sealed", where)
	case mrm.CellBusy:
		s.line("%s: another process runs it", where)
	case mrm.CellFailed:
		s.line("%s: failed: %v", where, e.Err)
	case mrm.CellSealed:
		why := ""
		if e.Why != "" {
			why = " (" + e.Why + ")"
		}
		s.line("%s: %s%s, %v, %s", where, e.Class, why, e.Took.Round(100*time.Millisecond), e.Dir)
	}
}

// progress shows how far it is: on a terminal in place, elsewhere a line when a cell begins.
func (s *mrmShow) progress(e mrm.Event) {
	left := ""
	if e.Left > 0 {
		left = ", about " + e.Left.Round(time.Second).String() + " to go"
	}
	if s.bar == nil {
		if e.Kind == mrm.CellBegun {
			s.line("[%d/%d] %s: begins%s", e.Number, e.Of, e.Cell.Name(), left)
		}
		return
	}
	if s.live == nil {
		s.live = s.bar(e.Of * max(e.Steps, 1))
	}
	_ = s.live.Set((e.Number-1)*max(e.Steps, 1) + max(e.Step-1, 0)) // a bar that cannot be drawn is not a failure
	if e.Text != "" {
		s.live.Describe(present.Line(fmt.Sprintf("%s: %s%s", e.Cell.Name(), e.Text, left)))
	}
}

func (s *mrmShow) line(format string, args ...any) {
	if s.live != nil {
		_ = s.live.Clear()
	}
	fmt.Fprintf(s.out, "llamatap: "+format+"\n", args...)
}

// end sums up.
func (s *mrmShow) end(o mrm.Outcome) {
	if s.live != nil {
		_ = s.live.Clear()
	}
	if o.Done+len(o.Sealed)+o.Busy+o.Failed == 0 {
		return
	}
	text := fmt.Sprintf("llamatap: %s sealed", present.Plural(len(o.Sealed), "cell"))
	for _, class := range []memory.Class{memory.Clean, memory.Marginal, memory.Contaminated} {
		if n := o.Classes[class]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, class)
		}
	}
	if o.Done > 0 {
		text += fmt.Sprintf("; %d were before", o.Done)
	}
	if o.Busy > 0 {
		text += fmt.Sprintf("; %d are run by another process", o.Busy)
	}
	if o.Failed > 0 {
		text += fmt.Sprintf("; %d failed", o.Failed)
	}
	fmt.Fprintln(s.out, text)
}
