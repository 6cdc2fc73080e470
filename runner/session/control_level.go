//go:build linux

package session

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/runner/session/control"
	"golang.org/x/sys/unix"
)

// levelOff is how a command names that no resource events are recorded.
const levelOff = "off"

// levels are the levels of resource events that commands ask for.
type levels struct {
	now   string    // the newest; "": none
	prior string    // that was taken away, for enable
	asked []leveled // and not in effect yet
}

// leveled is the level that a selection brings.
type leveled struct {
	selection uint32
	level     resource.Level
}

// next returns the level that a request asks for; "": none.
func (l *levels) next(r control.Request) string {
	switch {
	case r.Command == control.CommandEnable && l.now != "":
		return l.now
	case r.Command == control.CommandEnable:
		return l.prior
	case r.Command == control.CommandDisable || r.Level == levelOff:
		return ""
	}
	return r.Level
}

// set notes that a selection brings a level.
func (l *levels) set(selection uint32, next string) error {
	if next == "" && l.now != "" {
		l.prior = l.now
	}
	l.now = next
	parsed := resource.Off
	if next != "" {
		var err error
		if parsed, err = resource.ParseLevel(next); err != nil {
			return err
		}
	}
	l.asked = append(l.asked, leveled{selection, parsed})
	return nil
}

// apply passes on every level that holds from an execution on which goes by a selection.
func (l *levels) apply(selection uint32, set func(resource.Level)) {
	for len(l.asked) > 0 && l.asked[0].selection <= selection {
		set(l.asked[0].level)
		l.asked = l.asked[1:]
	}
}

// relevel changes the level of resource events from the next graph on, and leaves what is captured as it is.
func (st *steering) relevel(r control.Request) (selection uint32, level string, err error) {
	tap := st.run.o.Tap
	if !tap.Records(config.Resource) {
		return 0, "", errors.New("this run records no resource events: start one with --tap-resource-level MINIMAL")
	}
	next, wish := st.levels.next(r), st.wished
	wish.Machine = machineOf(next, tap)
	if selection, err = st.run.choose(wish); err != nil {
		return 0, "", err
	}
	st.wished, st.now.Selection, st.now.FirstExec = wish, selection, nil
	return selection, cmp.Or(next, levelOff), st.levels.set(selection, next)
}

// watchSignals takes SIGUSR1 and SIGUSR2 to the collector, where events are recorded: a step up from none to
// VERBOSE, where it stays, and no events.
func (st *steering) watchSignals() {
	if !st.run.o.Tap.Records(config.Resource) {
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
				r = control.Request{Command: control.CommandLevel, Level: cmp.Or(above[st.levels.now], "VERBOSE")}
			}
			if err := st.execute(r); err != nil {
				fmt.Fprintf(present.Err, "llamatap: %v: %v\n", s, err)
			}
		default:
			return
		}
	}
}

// above are the levels one step up, where that is not VERBOSE.
var above = map[string]string{"": "MINIMAL", "MINIMAL": "DETAILED"}
