//go:build linux

package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// halted is a recording that ended before the program did.
type halted struct {
	err   error
	cause string // as metadata.json names it
	at    time.Time
	// tokens is how many had been computed by then.
	tokens int64
}

// causeOf names an error as metadata.json does.
func causeOf(err error) string {
	var limit *limitError
	var number syscall.Errno
	switch {
	case errors.As(err, &limit):
		return limit.cause
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return "disk_full"
	case errors.As(err, &number):
		return "io_error"
	case errors.Is(err, ggmlhooks.ErrDesync) || errors.Is(err, collect.ErrQueue):
		return "tap_desync"
	}
	return "error"
}

// limited reports whether recording stopped on request, at a bound.
func (h *halted) limited() bool {
	var limit *limitError
	return h != nil && errors.As(h.err, &limit)
}

// wanted reports whether recording stopped where the user said that it should. The floor of free space that holds
// where none was given is nobody's wish.
func (h *halted) wanted() bool {
	var limit *limitError
	return h != nil && errors.As(h.err, &limit) && (limit.cause == causeMaxDisk || !limit.tap.MinFree.Auto)
}

// incomplete reports whether the run lacks what was to be recorded, for a reason that is not the user's own. sealing
// is why it could not be sealed.
func (s *sink) incomplete(sealing error) bool {
	return sealing != nil || s.halted != nil && !s.halted.wanted() || s.samples.incomplete()
}

// lossy reports whether the account lacks something, beyond what the user asked to leave out.
func (s *sink) lossy(a *rundir.Account) bool {
	wanted := func(l rundir.Loss) bool { return s.halted.wanted() && l.Cause == s.halted.cause }
	return len(a.Violations) > 0 || a.Events != nil && (len(a.Events.Lost) > 0 || a.Events.TokensAfter > 0 && !s.halted.wanted()) || slices.ContainsFunc(a.Lost, func(l rundir.Loss) bool { return !wanted(l) })
}

// halt ends writing for good: that of the collectors beside the tap, too. The tap goes on reporting what the model
// computes and copies nothing more, so that all that is missing is counted; what was recorded is made whole. Where
// the tap's reports cannot be read any more, the tap is informed that nothing is recorded, and the program continues as
// without it.
func (s *sink) halt(err error) {
	s.noteHalt(err)
	s.host.stop()
	s.monitor.stop()
	s.Sink = &after{}
	if s.recorder == nil {
		return
	}
	if !s.blind() {
		s.Sink = counting{s.recorder}
	}
	refused := s.recorder.Refuse()
	s.closeCurrent(!s.halted.limited() || refused != nil) // finish tries again, should it fail
}

func (s *sink) noteHalt(err error) {
	s.halted = &halted{err: err, cause: causeOf(err), at: time.Now(), tokens: s.tokens()}
	if s.blind() {
		s.region.Stop()
	} else {
		s.region.Count()
	}
}

// blind reports whether what the model computes can not be counted any more, because recording stopped for a
// defect, or before it began.
func (s *sink) blind() bool {
	if s.halted == nil {
		return false
	}
	err := s.halted.err
	return s.tee.capture == nil || errors.Is(err, ggmlhooks.ErrDesync) || errors.Is(err, collect.ErrQueue) || errors.Is(err, ErrSelection) || errors.Is(err, ErrRepeat)
}

// vanished reports whether the run directory was taken away.
func (s *sink) vanished() bool {
	_, err := os.Lstat(s.dir.Path())
	return errors.Is(err, fs.ErrNotExist)
}

// closeCurrent closes the files of the last segment, and reports what is missing in it.
func (s *sink) closeCurrent(broken bool) error {
	g := s.current
	g.speller = s.speller
	g.span = useSince(s.use(), g.base)
	s.series.settle() // what is released below is for both
	err := g.close(time.Since(s.started), broken, s.streamLosses(g), s.reserve)
	if g.failure != nil && s.halted == nil {
		s.noteHalt(g.failure)
	}
	return err
}

// streamLosses is what the stream of a segment says about missing packets.
func (s *sink) streamLosses(g *segment) (losses []stream.Loss) {
	for _, l := range s.tally(g.span).Lost {
		losses = append(losses, stream.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
	}
	if s.halted != nil && len(losses) == 0 {
		losses = append(losses, stream.Loss{Cause: s.halted.cause}) // what follows is counted in the metadata
	}
	return losses
}

// stopped is what metadata.json says of a recording that ended early.
func (s *sink) stopped() *rundir.Stopped {
	if s.halted == nil {
		return nil
	}
	stopped := &rundir.Stopped{Cause: s.halted.cause, At: s.halted.at.UTC(), GraphsAfter: s.region.Stats().Unrecorded}
	if !s.halted.limited() {
		stopped.Error = s.halted.err.Error()
	}
	for i := range s.series.places {
		if last := s.series.places[i].LastToken; last != nil {
			stopped.LastToken = last
		}
	}
	if s.current != nil && s.current.place.LastToken != nil {
		stopped.LastToken = s.current.place.LastToken
	}
	return stopped
}

// endsProgram reports whether the program ends with the recording: where the request itself was wrong, or a run
// cannot be resumed, and where the user wants it.
func (s *sink) endsProgram(err error) bool {
	return errors.Is(err, ErrSelection) || errors.Is(err, ErrRepeat) || s.o.Resume != nil && s.current == nil || s.o.Tap.OnFailure == config.FailureStop
}

// warn informs the user at once that recording has ended and the program has not.
func (s *sink) warn() {
	s.warned = true
	fmt.Fprintf(terminal.Err, "llamatap: %v; the program goes on unrecorded\n", explain(s.halted.err, s.o.Tap.Out))
}

// counting hands on what the capture's recorder counts by. It is a ggmlhooks.Sink.
type counting struct{ *capture.Recorder }

// Capture counts a tensor that was to be recorded.
func (c counting) Capture(t *ggmlhooks.Capture) error {
	if t.For&ggmlhooks.ForStream == 0 {
		t.Release()
		return nil
	}
	return c.Recorder.Capture(t)
}

// after takes what comes when nothing is recorded or counted any more. It is a ggmlhooks.Sink.
type after struct{ ggmlhooks.NoMachine }

func (a *after) Context(*ggmlhooks.Context) error { return nil }
func (a *after) Graph(*ggmlhooks.Graph) error     { return nil }
func (a *after) Call(*ggmlhooks.Call) error       { return nil }
func (a *after) Exec(*ggmlhooks.Exec) error       { return nil }
func (a *after) ExecEnd(ggmlhooks.ExecEnd) error  { return nil }
func (a *after) Resolve(ggmlhooks.Resolve) error  { return nil }

// SeqChange is of no interest any more.
func (a *after) SeqChange(*ggmlhooks.SeqChange) error { return nil }

func (a *after) Capture(c *ggmlhooks.Capture) error {
	c.Release()
	return nil
}
