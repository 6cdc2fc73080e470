//go:build linux

package session

import (
	"errors"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
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
		return causeFull
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
