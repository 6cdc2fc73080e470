//go:build linux

package session

import (
	"errors"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache/track"
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

// openBeside makes the recorders that were asked for beside that of tensors.
func (s *sink) openBeside() ([]io.Closer, error) {
	var all []io.Closer
	for _, recorder := range []struct {
		wanted bool
		open   func() (io.Closer, error)
	}{
		{s.o.Tap.Records(config.Resource), func() (io.Closer, error) { return s.openEvents() }},
		{followsCells(s.o.Tap), func() (io.Closer, error) { return s.openKV() }},
		{s.o.Tap.Records(config.Regions), func() (io.Closer, error) { return s.openRegions() }},
		{s.o.Tap.Records(config.Ledger), func() (io.Closer, error) { return s.openLedger(), nil }}, // behind the map that it asks
		{s.samples != nil, func() (io.Closer, error) { return s.openSamples() }},
		{s.host != nil, func() (io.Closer, error) { return s.host, s.host.openFiles(s) }},
		{s.host != nil && s.host.waits != nil, func() (io.Closer, error) { return s.host.waits, nil }},
	} {
		if !recorder.wanted {
			continue
		}
		b, err := recorder.open()
		if err != nil {
			for _, begun := range all { // a file that stays open keeps the run from being sealed
				err = errors.Join(err, begun.Close())
			}
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// kv is the tracker of cells with the file that it writes.
type kv struct {
	*track.Recorder
	file io.WriteCloser // nil: there is none
}

// openKV makes the tracker. Its file appears when it is closed.
func (s *sink) openKV() (*kv, error) {
	o := track.Options{Block: s.o.Tap.KVBlock, UnixOffset: s.clock.UnixNS - s.clock.MonoNS}
	if s.events != nil {
		o.Operation = s.events.KV
	}
	var k kv
	if s.o.Tap.Records(config.KV) {
		var err error
		if k.file, err = s.dir.Create(track.FileName); err != nil {
			return nil, err
		}
		o.Out = k.file
	}
	var err error
	if k.Recorder, err = track.NewRecorder(o); err != nil {
		if k.file != nil {
			err = errors.Join(err, k.file.Close())
		}
		return nil, err
	}
	s.kv = &k
	return s.kv, nil
}

// Close ends the lives that go on, and the file.
func (k *kv) Close() error {
	err := k.Recorder.Close()
	if k.file != nil {
		err = errors.Join(err, k.file.Close())
	}
	return err
}

// beside says in words what was recorded beside tensors.
func (s *sink) beside() (lines []string) {
	if s.events != nil {
		lines = append(lines, s.events.words())
	}
	if s.host != nil {
		lines = append(lines, s.host.words())
	}
	if s.kv != nil && s.kv.file != nil {
		lines = append(lines, s.kv.words())
	}
	if s.regions != nil {
		lines = append(lines, s.regions.words())
	}
	if s.ledger != nil {
		lines = append(lines, s.ledger.words())
	}
	if s.samples != nil && s.samples.out != nil {
		lines = append(lines, s.samples.words())
	}
	return lines
}

// words say how the caches were used.
func (k *kv) words() string {
	snapshot := k.Snapshot()
	used, cells := 0, 0
	for _, c := range append(snapshot.Caches, snapshot.Freed...) {
		used, cells = used+c.Used, cells+c.Cells
	}
	text := fmt.Sprintf("cache     %d of %d cells in use at the end of the recording", used, cells)
	if ratio, ok := snapshot.Reuse.Ratio(); ok && snapshot.Reuse.Requests > 1 {
		text += fmt.Sprintf(", %.0f %% of what %d prompts needed was there", 100*ratio, snapshot.Reuse.Requests)
	}
	return text
}
