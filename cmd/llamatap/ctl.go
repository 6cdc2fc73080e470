//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
)

const ctlHelp = `llamatap ctl: look at a run that goes on, and change what it captures

usage: llamatap ctl RUNDIR status
       llamatap ctl RUNDIR tap GLOB[,GLOB]… [for N tokens] [layers LIST]
       llamatap ctl RUNDIR on|off|flush|stop
       llamatap ctl RUNDIR level MINIMAL|DETAILED|VERBOSE|off, or enable, or disable
       any of them with --json

RUNDIR is the directory of a live run, or a folder with just one such run below it. It may also be the address of your own
'llamatap serve', http://HOST:PORT or unix:PATH, for status, level, enable, disable and flush: its token is found in its file.

  status  what is captured now, and how much there is
  tap     capture the tensors of these names and no others, of every layer unless some are listed, and every token; with a number
          of tokens, that many from the next graph on, and then nothing
  off     capture nothing; graphs and tokens are still recorded
  on      capture what was asked for when the run was started
  flush   make everything that was recorded readable: 'llamatap inspect RUNDIR' then shows it
  stop    record no more and seal the run; the model goes on
  level   record resource events at this level, or none; disable and enable do the same with the level that there is

A change is in effect from the model's next graph on. The run notes it in control.jsonl and metadata.json.

  llamatap ctl ./llamatap-runs tap 'l_out*' for 20 tokens
`

// sealTime is how long ctl stop waits for the seal before it leaves it to the collector.
const sealTime = 60 * time.Second

// runCtl asks the collector of a run.
func runCtl(args []string) error {
	dir, request, asJSON, err := parseCtl(args)
	if errors.Is(err, flag.ErrHelp) {
		terminal.Print(ctlHelp)
		return nil
	}
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	if server.IsAddress(dir) {
		return ctlServer(dir, request, asJSON)
	}
	run, err := control.Find(dir)
	if err != nil {
		return err
	}
	if filepath.Clean(run) != filepath.Clean(dir) {
		fmt.Fprintf(terminal.Err, "llamatap: the run is %s\n", run)
	}
	answer, err := control.Ask(run, request)
	switch {
	case errors.Is(err, control.ErrRequest):
		return exitStatus{Code: 2, Err: err}
	case err != nil:
		return err
	}
	if asJSON {
		if err := json.NewEncoder(terminal.Out).Encode(answer); err != nil {
			return err
		}
	}
	switch {
	case !answer.OK && asJSON:
		return exitStatus{Code: 1}
	case !answer.OK:
		return fmt.Errorf("%s: %s", run, answer.Error)
	}
	if request.Command == control.CommandStop {
		if err := awaitSeal(run); err != nil {
			return err
		}
	}
	if asJSON {
		return nil
	}
	return writeCtl(terminal.Out, request.Command, answer.Status)
}

// ctlServer gives the run that a server shows a command.
func ctlServer(addr string, r control.Request, asJSON bool) error {
	switch r.Command {
	case control.CommandStatus, control.CommandLevel, control.CommandEnable, control.CommandDisable, control.CommandFlush:
	default:
		return exitStatus{Code: 2, Err: fmt.Errorf("%s through a server: give the run's directory instead", r.Command)}
	}
	text, err := server.Ask(context.Background(), addr, server.Command{Command: r.Command, Level: r.Level})
	if err != nil {
		return err
	}
	var status control.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("%s: read the answer: %w", addr, err)
	}
	if asJSON {
		return json.NewEncoder(terminal.Out).Encode(control.Answer{OK: true, Status: &status})
	}
	return writeCtl(terminal.Out, r.Command, &status)
}

// awaitSeal waits for the manifest of a run that was stopped.
func awaitSeal(run string) error {
	for deadline := time.Now().Add(sealTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(run, rundir.ManifestName)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: recording was stopped, and the run was not sealed within %v: 'llamatap verify %s' tells more", run, sealTime, run)
}

// parseCtl reads the arguments; --json may stand anywhere.
func parseCtl(args []string) (dir string, r control.Request, asJSON bool, err error) {
	var words []string
	for _, arg := range args {
		switch {
		case arg == "-h" || arg == "--help":
			return "", r, false, flag.ErrHelp
		case arg == "--json":
			asJSON = true
		case strings.HasPrefix(arg, "-"):
			return "", r, false, fmt.Errorf("unknown flag %s: there is --json", arg)
		default:
			words = append(words, arg)
		}
	}
	if len(words) < 2 {
		return "", r, false, errors.New("usage: llamatap ctl RUNDIR status|tap GLOB [for N tokens]|off|on|flush|stop|level LEVEL|enable|disable [--json]")
	}
	dir, r.Command = words[0], words[1]
	if err = ctlWords(&r, words[2:]); err == nil {
		err = r.Check()
	}
	return dir, r, asJSON, err
}

// ctlWords reads what stands behind the command: globs, then "for N tokens" and "layers LIST".
func ctlWords(r *control.Request, words []string) error {
	if r.Command == control.CommandLevel {
		if len(words) != 1 {
			return fmt.Errorf("level needs one of %s", strings.Join(control.Levels, ", "))
		}
		r.Level = words[0]
		if !strings.EqualFold(words[0], "off") {
			r.Level = strings.ToUpper(words[0])
		}
		return nil
	}
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "for":
			if i+2 >= len(words) || words[i+2] != "tokens" && words[i+2] != "token" {
				return errors.New("'for' needs a number and 'tokens', as in: for 20 tokens")
			}
			n, err := strconv.ParseInt(words[i+1], 10, 64)
			if err != nil || n < 1 {
				return fmt.Errorf("for %s tokens: give a whole number from 1", words[i+1])
			}
			r.Tokens = n
			i += 2
		case words[i] == "layers":
			if i+1 >= len(words) {
				return errors.New("'layers' needs a list, as in: layers 0-3,7")
			}
			r.Layers = words[i+1]
			i++
		case r.Tokens > 0 || r.Layers != "":
			return fmt.Errorf("unexpected %q: tensors stand before 'for' and 'layers'", words[i])
		default:
			r.Tensors = append(r.Tensors, strings.Split(words[i], ",")...)
		}
	}
	return nil
}

// writeCtl tells what a command came to.
func writeCtl(out io.Writer, command string, s *control.Status) error {
	if s == nil {
		return nil
	}
	if command == control.CommandStop {
		_, err := fmt.Fprintf(out, "stopped and sealed: %s\n", s.Run)
		return err
	}
	lost, overhead := "nothing lost", ""
	if a := s.Account; a != nil {
		if a.Lossy() {
			lost = "LOST " + a.LossText()
		}
		if text := a.OverheadText(); text != "" {
			overhead = "\noverhead  " + text
		}
	}
	events := ""
	if s.Level != "" {
		events = "\nevents    " + s.Level
	}
	_, err := fmt.Fprintf(out, "run       %s (process %d)\ncaptured  %s%s\nso far    %d executions, %d tensors, %d bytes stored, %s%s\n",
		s.Run, s.PID, ctlCaptured(s), events, s.Executions, s.Packets, s.Stored, lost, overhead)
	return err
}

// ctlCaptured says what is captured now.
func ctlCaptured(s *control.Status) string {
	what := strings.Join(s.Tensors, ", ")
	if s.Layers != "" {
		what = strings.TrimPrefix(what+" of layers "+s.Layers, " ")
	}
	switch s.State {
	case control.StateOff:
		what = "nothing"
	case control.StateStart:
		what = strings.TrimSuffix("as at the start: "+what, ": ")
	case control.StateDone:
		what = fmt.Sprintf("nothing more: %s was captured for %d tokens", what, s.Tokens)
	case control.StateTap:
		if s.Tokens > 0 {
			what += fmt.Sprintf(" for %d tokens", s.Tokens)
		}
		if s.Left != nil {
			what += fmt.Sprintf(", %d to go", *s.Left)
		}
	}
	switch {
	case s.Selection == 0:
	case s.FirstExec == nil:
		what += ", from the next graph on"
	default:
		what += fmt.Sprintf(", from execution %d on", *s.FirstExec)
	}
	return what
}
