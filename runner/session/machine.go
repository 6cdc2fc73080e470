//go:build linux

package session

import (
	"io"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// tee is the assembler of the session's recorders. What comes before the run directory is there waits for it: buffers
// that hold the model, or that a context had which never computed, and what was moved.
type tee struct {
	*ggmlhooks.Assembler
	opened  bool           // the recorders are there
	early   []func() error // what waits, in order
	onEarly func()         // called for each buffer that waits; nil: nothing is to be done
}

// open begins to hand on. pool is the size of the slots' pool, in bytes.
func (t *tee) open(pool int64, recorders ...io.Closer) error {
	t.Assembler, t.opened = ggmlhooks.NewAssembler(0, recorders...), true
	t.Slots.Bound, t.Slots.Size = pool/2, collect.SlotBytes
	for _, report := range t.early {
		if err := report(); err != nil {
			return err
		}
	}
	t.early = nil
	return nil
}

// Moved is handed on once there is a run directory.
func (t *tee) Moved(m *ggmlhooks.Moved) error {
	if t.opened {
		return t.Assembler.Moved(m)
	}
	kept := *m
	t.early = append(t.early, func() error { return t.Assembler.Moved(&kept) })
	return nil
}

// Buffer is handed on once there is a run directory.
func (t *tee) Buffer(b *ggmlhooks.Buffer) error {
	if t.opened {
		return t.Assembler.Buffer(b)
	}
	kept := *b
	t.early = append(t.early, func() error { return t.Assembler.Buffer(&kept) })
	if t.onEarly != nil {
		t.onEarly()
	}
	return nil
}

// BufferEnd is handed on once there is a run directory.
func (t *tee) BufferEnd(e ggmlhooks.BufferEnd) error {
	if t.opened {
		return t.Assembler.BufferEnd(e)
	}
	t.early = append(t.early, func() error { return t.Assembler.BufferEnd(e) })
	return nil
}

// machineOf is what the tap reports for a level of resource events. Memory is followed from the beginning of
// the run on, or not at all.
func machineOf(level string, tap *config.Tap) collect.Machine {
	ledger := tap.Records(config.Ledger)
	m := collect.Machine{Cells: followsCells(tap) || ledger, Experts: ledger, LookEvery: uint32(tap.ResourceSample),
		Requests: tap.Records(config.Requests), Moves: len(tap.Hosts) > 0, Copies: ledger}
	switch level {
	case "DETAILED":
		m.Looking, m.Routing = ggmlhooks.LookRanges, true
	case "VERBOSE":
		m.Looking, m.Routing, m.Samples = ggmlhooks.LookOps, true, true
	}
	return m
}

// followsCells reports whether the cells of memories are followed.
func followsCells(tap *config.Tap) bool {
	return tap.KV || tap.ResourceLevel == "DETAILED" || tap.ResourceLevel == "VERBOSE"
}
