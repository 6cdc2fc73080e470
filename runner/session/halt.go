//go:build linux

package session

import (
	"errors"
	"fmt"
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
	case errors.Is(err, capture.ErrDesync) || errors.Is(err, collect.ErrQueue):
		return "tap_desync"
	}
	return "error"
}

// limited tells whether recording stopped because it was told to, at a bound.
func (h *halted) limited() bool {
	var limit *limitError
	return h != nil && errors.As(h.err, &limit)
}

// wanted tells whether recording stopped where the user said that it should. The floor of free space that holds where none was given is
// nobody's wish.
func (h *halted) wanted() bool {
	var limit *limitError
	return errors.As(h.err, &limit) && (limit.cause == causeMaxDisk || !limit.tap.MinFree.Auto)
}

// incomplete tells whether the run lacks what was to be recorded, for a reason that is not the user's own. sealing is why it could not be
// sealed.
func (s *sink) incomplete(sealing error) bool {
	return sealing != nil || s.halted != nil && !s.halted.wanted() || s.events != nil && s.events.failed() || s.samples.incomplete()
}

// halt ends recording for good: the tap is told, so that the program goes on as without it; what is held back is given up; and what was
// recorded is made whole. What comes in from here on is counted.
func (s *sink) halt(err error) {
	s.noteHalt(err)
	s.Sink = &s.after
	if s.recorder == nil {
		return
	}
	s.recorder.Close()
	s.refused.Packets += s.recorder.Use().GivenUp.Packets
	s.refused.Bytes += s.recorder.Use().GivenUp.Bytes
	broken := !s.halted.limited() || s.recorder.Finish() != nil
	s.closeCurrent(broken) // finish tries again, should it fail
}

func (s *sink) noteHalt(err error) {
	s.region.Stop()
	s.halted = &halted{err: err, cause: causeOf(err), at: time.Now()}
}

// closeCurrent closes the files of the last segment, and tells of what is missing in it.
func (s *sink) closeCurrent(broken bool) error {
	g := s.current
	g.speller = s.speller
	s.series.settle() // what is released below is for both
	err := g.close(time.Since(s.started), broken, s.streamLosses(g), s.reserve)
	if g.failure != nil && s.halted == nil {
		s.noteHalt(g.failure)
	}
	return err
}

// streamLosses is what the stream of a segment says about missing packets.
func (s *sink) streamLosses(g *segment) (losses []stream.Loss) {
	for _, l := range s.account().since(g.base).stats.Losses {
		if s.halted == nil || l.Cause != causeGone {
			losses = append(losses, stream.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
		}
	}
	if s.halted != nil {
		losses = append(losses, stream.Loss{Cause: s.halted.cause, Packets: s.refused.Packets, Bytes: s.refused.Bytes})
	}
	return losses
}

// causeGone is under what the tap counts what it has captured when it learns that nothing is recorded any more.
const causeGone = "collector_gone"

// losses is what was not recorded in a stretch of the run. last tells whether it is the one in which recording may have stopped.
func (s *sink) losses(a account, cut capture.Count, last bool) []rundir.Loss {
	losses := []rundir.Loss{}
	var stopped rundir.Loss
	for _, l := range a.stats.Losses {
		if s.halted != nil && l.Cause == causeGone {
			stopped.Packets, stopped.Bytes = l.Packets, l.Bytes
			continue
		}
		losses = append(losses, rundir.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
	}
	if s.halted != nil && last {
		stopped.Cause = s.halted.cause
		stopped.Packets += s.refused.Packets + s.after.count.Packets + cut.Packets
		stopped.Bytes += s.refused.Bytes + s.after.count.Bytes + cut.Bytes
		losses = append(losses, stopped)
	}
	return losses
}

// addLoss adds a loss to the entry of its cause.
func addLoss(losses []rundir.Loss, l rundir.Loss) []rundir.Loss {
	for i := range losses {
		if losses[i].Cause == l.Cause {
			losses[i].Packets, losses[i].Bytes = losses[i].Packets+l.Packets, losses[i].Bytes+l.Bytes
			return losses
		}
	}
	return append(losses, l)
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

// endsProgram tells whether the program ends with the recording: where the request itself was wrong, or a run cannot be gone on with, and
// where the user wants it.
func (s *sink) endsProgram(err error) bool {
	return errors.Is(err, ErrSelection) || errors.Is(err, ErrRepeat) || s.o.Resume != nil && s.current == nil || s.o.Tap.OnFailure == config.FailureStop
}

// warn tells the user at once that recording has ended and the program has not.
func (s *sink) warn() {
	s.warned = true
	fmt.Fprintf(terminal.Err, "llamatap: %v; the program goes on unrecorded\n", explain(s.halted.err, s.o.Tap.Out))
}

// after takes what comes when recording has ended, and counts the tensors. It is a ggmlhooks.Sink.
type after struct {
	ggmlhooks.NoMachine
	count capture.Count
}

func (a *after) Context(*ggmlhooks.Context) error { return nil }
func (a *after) Graph(*ggmlhooks.Graph) error     { return nil }
func (a *after) Call(*ggmlhooks.Call) error       { return nil }
func (a *after) CallEnd(ggmlhooks.CallEnd) error  { return nil }
func (a *after) Exec(*ggmlhooks.Exec) error       { return nil }
func (a *after) ExecEnd(ggmlhooks.ExecEnd) error  { return nil }
func (a *after) Resolve(ggmlhooks.Resolve) error  { return nil }

// SeqChange is of no interest any more.
func (a *after) SeqChange(*ggmlhooks.SeqChange) error { return nil }

func (a *after) Capture(c *ggmlhooks.Capture) error {
	a.count.Packets++
	a.count.Bytes += uint64(len(c.Data))
	c.Release()
	return nil
}
