//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/runner/session/control"
	"golang.org/x/sys/unix"
)

// levelOff is how a command names that no resource events are recorded.
const levelOff = "off"

// relevel changes the level of resource events from the next graph on, and leaves what is captured as it is.
func (st *steering) relevel(r control.Request) (selection uint32, level string, err error) {
	tap := st.s.o.Tap
	if !tap.Records(config.Resource) {
		return 0, "", errors.New("this run records no resource events: start one with --tap-resource-level MINIMAL")
	}
	next := r.Level
	switch {
	case r.Command == control.CommandEnable && st.level != "":
		next = st.level
	case r.Command == control.CommandEnable:
		next = st.before
	case r.Command == control.CommandDisable || next == levelOff:
		next = ""
	}
	wish := st.wished
	if st.now.Left != nil { // what a tap command has left, no more
		wish.Selection.Window, wish.Off = *st.now.Left, wish.Off || *st.now.Left == 0
	}
	wish.Machine = machineOf(next, tap)
	if selection, err = st.s.region.Select(wish); err != nil {
		return 0, "", err
	}
	if next == "" && st.level != "" {
		st.before = st.level
	}
	st.wished, st.level, st.now.Selection, st.now.FirstExec = wish, next, selection, nil
	if next == "" {
		level = levelOff
	} else {
		level = next
	}
	parsed := resource.Off
	if next != "" {
		if parsed, err = resource.ParseLevel(next); err != nil {
			return 0, "", err
		}
	}
	st.levels = append(st.levels, leveled{selection, parsed})
	return selection, level, nil
}

// leveled is the level that a selection brings.
type leveled struct {
	selection uint32
	level     resource.Level
}

// takeLevels passes to the recorder of events every level that holds from an execution on.
func (st *steering) takeLevels(selection uint32, mono int64) {
	for len(st.levels) > 0 && st.levels[0].selection <= selection {
		st.s.events.SetLevel(st.levels[0].level, mono)
		st.levels = st.levels[1:]
	}
}

// watchSignals takes SIGUSR1 and SIGUSR2 to the collector, where events are recorded: a step up from none to
// VERBOSE, where it stays, and no events.
func (st *steering) watchSignals() {
	if !st.s.o.Tap.Records(config.Resource) {
		return
	}
	st.signals = make(chan os.Signal, 16)
	signal.Notify(st.signals, unix.SIGUSR1, unix.SIGUSR2)
}

// obeySignals does what the signals that have come ask for.
func (st *steering) obeySignals() {
	for {
		select {
		case s := <-st.signals:
			r := control.Request{Command: control.CommandDisable}
			if s == unix.SIGUSR1 {
				r = control.Request{Command: control.CommandLevel, Level: above(st.level)}
			}
			if err := st.obey(r); err != nil {
				fmt.Fprintf(terminal.Err, "llamatap: %v: %v\n", s, err)
			}
		default:
			return
		}
	}
}

// above is the level one step up.
func above(level string) string {
	switch level {
	case "":
		return "MINIMAL"
	case "MINIMAL":
		return "DETAILED"
	}
	return "VERBOSE"
}
