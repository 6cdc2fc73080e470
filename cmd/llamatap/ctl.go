//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
)

// ctlCommand looks at a live run, and changes what it captures.
func ctlCommand() *cli.Command {
	return &cli.Command{
		Name: "ctl", Summary: "look at a live run, and change what it captures", Max: -1, Min: 2,
		Needs: "give RUNDIR and a command",
		Usage: "RUNDIR status [--json]\nRUNDIR tap GLOB[,GLOB]…|points LIST [for N tokens] [layers LIST]\nRUNDIR " +
			"on|off|flush|stop\n" +
			"RUNDIR level MINIMAL|DETAILED|VERBOSE|off\nRUNDIR enable|disable\n" +
			"RUNDIR steer FILE[:SCALE][:LAYERS]|off [sequence N]",
		Text: `RUNDIR is the directory of a live run, or a folder with just one such run below it. It may also be the
address of your own 'llamatap serve', http://HOST:PORT or unix:PATH, for status, level, enable, disable and flush: its
token is found in its file.

  status  what is captured now, and how much there is
  tap     capture the tensors of these names or named points and no others, of every layer unless some are listed, and
          every token; with a number of tokens, that many from the next graph on, and then nothing
  off     capture nothing; graphs and tokens are still recorded
  on      capture what was asked for when the run was started
  flush   make everything that was recorded readable: 'llamatap inspect RUNDIR' then shows it
  stop    stop recording and seal the run; the model continues
  level   record resource events at this level, or none
  disable record no resource events
  enable  record them again, at the level that there was
  steer   add a control vector to the residual stream in place of the one before, or none: the run has to be armed
          ('llamatap help recording', --tap-steer). What was cached under another vector is computed again.
          With a sequence, for that one alone: in llama-server a slot, which a request names as id_slot

A change is in effect from the model's next graph on. The run notes it in control.jsonl and metadata.json.

  llamatap ctl ./llamatap-runs tap 'l_out*' for 20 tokens
  llamatap ctl ./llamatap-runs tap points resid_post,mlp_act layers 0-3
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			form.define(f, "text", "json")
			return func(words []string) error {
				r, err := ctlRequest(words)
				if err != nil {
					return cli.Wrong(err)
				}
				return form.write(func(out io.Writer) error { return ctl(out, words[0], r, form.form == "json") })
			}
		},
	}
}

// sealTime is how long ctl stop waits for the seal before it leaves it to the collector.
const sealTime = 60 * time.Second

// ctl gives a command to the collector of a run.
func ctl(out io.Writer, dir string, request control.Request, asJSON bool) error {
	if server.IsAddress(dir) {
		return ctlServer(out, dir, request, asJSON)
	}
	run, err := control.Find(dir)
	if err != nil {
		return err
	}
	if filepath.Clean(run) != filepath.Clean(dir) {
		fmt.Fprintf(present.Err, "llamatap: the run is %s\n", run)
	}
	answer, err := control.Ask(run, request)
	switch {
	case errors.Is(err, control.ErrRequest):
		return cli.Wrong(err)
	case err != nil:
		return err
	}
	if asJSON {
		if err := json.NewEncoder(out).Encode(answer); err != nil {
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
	return writeCtl(out, request.Command, answer.Status)
}

// ctlServer gives the run that a server shows a command.
func ctlServer(out io.Writer, addr string, r control.Request, asJSON bool) error {
	switch r.Command {
	case control.CommandStatus, control.CommandLevel, control.CommandEnable, control.CommandDisable,
		control.CommandFlush:
	default:
		return cli.Wrongf("%s through a server: give the run's directory instead", r.Command)
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
		return json.NewEncoder(out).Encode(control.Answer{OK: true, Status: &status})
	}
	return writeCtl(out, r.Command, &status)
}

// awaitSeal waits for the manifest of a run that was stopped.
func awaitSeal(run string) error {
	for deadline := time.Now().Add(sealTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if sealed, err := rundir.Sealed(run); sealed || err != nil {
			return err
		}
	}
	return fmt.Errorf(
		"%s: recording was stopped, and the run was not sealed within %v: 'llamatap verify %s' reports its state", run,
		sealTime, run)
}

// ctlRequest reads what follows the run: a command and its words.
func ctlRequest(words []string) (r control.Request, err error) {
	r.Command = words[1]
	if err = ctlWords(&r, words[2:]); err == nil {
		err = r.Check()
	}
	return r, err
}

// ctlWords reads what follows the command: globs, then "for N tokens" and "layers LIST".
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
	if r.Command == control.CommandSteer {
		return steerWord(r, words)
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
		case words[i] == "points":
			if i+1 >= len(words) {
				return errors.New("'points' needs a list, as in: points resid_post,mlp_act")
			}
			r.Points = strings.Split(words[i+1], ",")
			i++
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

// steerWord reads the vector that follows steer: the run's process may stand in another folder.
func steerWord(r *control.Request, words []string) error {
	if len(words) == 3 && words[1] == "sequence" {
		n, err := strconv.Atoi(words[2])
		if err != nil {
			return fmt.Errorf("sequence %s: give a whole number from 0", words[2])
		}
		r.Sequence, words = &n, words[:1]
	}
	if len(words) != 1 {
		return errors.New("steer needs one vector, as in: steer code.gguf:0.5:3-5, or off; then, for one sequence " +
			"alone: sequence 2")
	}
	if r.Vector = words[0]; words[0] == control.VectorOff {
		return nil
	}
	steer, err := config.ParseSteer(words[0])
	if err == nil {
		steer.File, err = filepath.Abs(steer.File)
	}
	r.Vector = steer.String()
	return err
}

// writeCtl prints the result of a command.
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
			lost = "LOST " + present.Losses(a)
		}
		if text := present.Overhead(a); text != "" {
			overhead = "\noverhead  " + text
		}
	}
	events := ""
	if s.Level != "" {
		events = "\nevents    " + s.Level
	}
	if s.Steering != nil {
		events += "\nsteering  " + s.Steering.String()
	}
	for _, own := range s.Sequences {
		events += "\nsteering  " + own.String()
	}
	_, err := fmt.Fprintf(out,
		"run       %s (process %d)\ncaptured  %s%s\nso far    %s, %s, %d bytes stored, %s%s\n",
		s.Run, s.PID, ctlCaptured(s), events, present.Plural(s.Executions, "execution"),
		present.Plural(s.Packets, "tensor"), s.Stored, lost, overhead)
	return err
}

// ctlCaptured says what is captured now.
func ctlCaptured(s *control.Status) string {
	what := strings.Join(slices.Concat(s.Tensors, s.Points), ", ")
	if s.Layers != "" {
		what = strings.TrimPrefix(what+" of layers "+s.Layers, " ")
	}
	switch s.State {
	case control.StateOff:
		what = "nothing"
	case control.StateStart:
		what = strings.TrimSuffix("as at the start: "+what, ": ")
	case control.StateDone:
		what = fmt.Sprintf("nothing more: %s was captured for %s", what, present.Plural(s.Tokens, "token"))
	case control.StateTap:
		if s.Tokens > 0 {
			what += fmt.Sprintf(" for %s", present.Plural(s.Tokens, "token"))
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
