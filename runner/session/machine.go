//go:build linux

package session

import (
	"io"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// tee hands what the tap reports to the capture's recorder, and to the assembler of the others. What comes before the
// run directory is there, buffers that hold the model, waits for it.
type tee struct {
	*ggmlhooks.Assembler                // of the recorders beside the capture's
	capture              ggmlhooks.Sink // nil: not there yet
	early                []ggmlhooks.Buffer
	onEarly              func() // called for each of them; nil: nothing is to be done
}

// open begins to hand on.
func (t *tee) open(capture ggmlhooks.Sink, others []io.Closer) error {
	t.capture, t.Assembler = capture, ggmlhooks.NewAssembler(0, others...)
	for i := range t.early {
		if err := t.Buffer(&t.early[i]); err != nil {
			return err
		}
	}
	t.early = nil
	return nil
}

// both returns the first error: a report is handed to both, whatever the first of them makes of it.
func both(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// Context is handed to both.
func (t *tee) Context(c *ggmlhooks.Context) error {
	return both(t.capture.Context(c), t.Assembler.Context(c))
}

// Graph is handed to both.
func (t *tee) Graph(g *ggmlhooks.Graph) error {
	return both(t.capture.Graph(g), t.Assembler.Graph(g))
}

// Call is handed to both.
func (t *tee) Call(c *ggmlhooks.Call) error { return both(t.capture.Call(c), t.Assembler.Call(c)) }

// Exec is handed to both.
func (t *tee) Exec(e *ggmlhooks.Exec) error { return both(t.capture.Exec(e), t.Assembler.Exec(e)) }

// ExecEnd is handed to both.
func (t *tee) ExecEnd(e ggmlhooks.ExecEnd) error {
	return both(t.capture.ExecEnd(e), t.Assembler.ExecEnd(e))
}

// Resolve is handed to both.
func (t *tee) Resolve(r ggmlhooks.Resolve) error {
	return both(t.capture.Resolve(r), t.Assembler.Resolve(r))
}

// SeqChange is handed to both.
func (t *tee) SeqChange(c *ggmlhooks.SeqChange) error {
	return both(t.capture.SeqChange(c), t.Assembler.SeqChange(c))
}

// Sync is handed to both.
func (t *tee) Sync(e ggmlhooks.Sync) error { return both(t.capture.Sync(e), t.Assembler.Sync(e)) }

// Capture goes to the one that the tensor is for, which releases it.
func (t *tee) Capture(c *ggmlhooks.Capture) error {
	if c.For&ggmlhooks.ForStream != 0 {
		return t.capture.Capture(c)
	}
	return t.Assembler.Capture(c)
}

// Buffer is handed on once there is a run directory.
func (t *tee) Buffer(b *ggmlhooks.Buffer) error {
	if t.capture == nil {
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
	m := collect.Machine{Cells: followsCells(tap) || ledger, Experts: ledger}
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

// startWish is what the tap captures and reports from the start on; b is what there is of a resumed run.
func startWish(tap *config.Tap, b *before) collect.Wish {
	return collect.Wish{
		Selection: b.selection(tap), MapsAlone: tap.AttentionAlone(), Off: tap.StartOff || !tap.Records(config.Activations),
		Machine: machineOf(tap.ResourceLevel, tap),
	}
}
