//go:build linux

package session

import (
	"io"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// tee is the assembler of the session's recorders. What comes before the run directory is there waits for it: buffers
// that hold the model, and what was moved there.
type tee struct {
	*ggmlhooks.Assembler
	opened  bool // the recorders are there
	early   []ggmlhooks.Buffer
	moved   []ggmlhooks.Moved
	onEarly func() // called for each of them; nil: nothing is to be done
}

// open begins to hand on. pool is the size of the slots' pool, in bytes.
func (t *tee) open(pool int64, recorders ...io.Closer) error {
	t.Assembler, t.opened = ggmlhooks.NewAssembler(0, recorders...), true
	t.Slots.Bound, t.Slots.Size = pool/2, collect.SlotBytes
	for i := range t.early {
		if err := t.Buffer(&t.early[i]); err != nil {
			return err
		}
	}
	for i := range t.moved {
		if err := t.Assembler.Moved(&t.moved[i]); err != nil {
			return err
		}
	}
	t.early, t.moved = nil, nil
	return nil
}

// Moved is handed on once there is a run directory.
func (t *tee) Moved(m *ggmlhooks.Moved) error {
	if !t.opened {
		t.moved = append(t.moved, *m)
		return nil
	}
	return t.Assembler.Moved(m)
}

// Buffer is handed on once there is a run directory.
func (t *tee) Buffer(b *ggmlhooks.Buffer) error {
	if !t.opened {
		t.early = append(t.early, *b)
		if t.onEarly != nil {
			t.onEarly()
		}
		return nil
	}
	return t.Assembler.Buffer(b)
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
