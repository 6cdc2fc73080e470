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

// beside is a recorder of what is no tensor. Close ends its files; it may be called twice.
type beside interface {
	ggmlhooks.Sink
	Close() error
}

// tee hands what the tap tells to the capture's recorder, and to those beside it. What comes before the run
// directory is there, buffers that hold the model, waits for it.
type tee struct {
	ggmlhooks.Sink // the capture's recorder; nil: not there yet
	beside         []beside
	early          []ggmlhooks.Buffer
	onEarly        func() // called for each of them; nil: nothing is to be done
	lent           ggmlhooks.Capture
}

// open begins to hand on.
func (t *tee) open(recorder ggmlhooks.Sink, others []beside) error {
	t.Sink, t.beside = recorder, others
	for i := range t.early {
		if err := t.Buffer(&t.early[i]); err != nil {
			return err
		}
	}
	t.early = nil
	return nil
}

// each calls f for the recorders beside the capture's. All are called; the first error is returned.
func (t *tee) each(f func(ggmlhooks.Sink) error) (first error) {
	for _, b := range t.beside {
		if err := f(b); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// both calls f for every recorder.
func (t *tee) both(f func(ggmlhooks.Sink) error) error {
	err := f(t.Sink)
	if other := t.each(f); err == nil {
		err = other
	}
	return err
}

// Context is handed to all.
func (t *tee) Context(c *ggmlhooks.Context) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.Context(c) })
}

// Graph is handed to all.
func (t *tee) Graph(g *ggmlhooks.Graph) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.Graph(g) })
}

// Call is handed to all.
func (t *tee) Call(c *ggmlhooks.Call) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.Call(c) })
}

// CallEnd is handed to all.
func (t *tee) CallEnd(e ggmlhooks.CallEnd) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.CallEnd(e) })
}

// Exec is handed to all.
func (t *tee) Exec(e *ggmlhooks.Exec) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.Exec(e) })
}

// ExecEnd is handed to all.
func (t *tee) ExecEnd(e ggmlhooks.ExecEnd) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.ExecEnd(e) })
}

// Resolve is handed to all.
func (t *tee) Resolve(r ggmlhooks.Resolve) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.Resolve(r) })
}

// SeqChange is handed to all.
func (t *tee) SeqChange(c *ggmlhooks.SeqChange) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.SeqChange(c) })
}

// Capture goes to the capture's recorder, which releases it, or to those beside, which look at it.
func (t *tee) Capture(c *ggmlhooks.Capture) error {
	if c.For&ggmlhooks.ForStream != 0 {
		return t.Sink.Capture(c)
	}
	t.lent = *c
	t.lent.Release = func() {} // each may release what it is handed, and it is released once
	err := t.each(func(s ggmlhooks.Sink) error { return s.Capture(&t.lent) })
	c.Release()
	return err
}

// Buffer is handed to those beside, once there is a run directory.
func (t *tee) Buffer(b *ggmlhooks.Buffer) error {
	if t.Sink == nil {
		t.early = append(t.early, *b)
		if t.onEarly != nil {
			t.onEarly()
		}
		return nil
	}
	return t.each(func(s ggmlhooks.Sink) error { return s.Buffer(b) })
}

// BufferEnd is handed to those beside.
func (t *tee) BufferEnd(e ggmlhooks.BufferEnd) error {
	return t.each(func(s ggmlhooks.Sink) error { return s.BufferEnd(e) })
}

// Times are handed to those beside.
func (t *tee) Times(n *ggmlhooks.Times) error {
	return t.each(func(s ggmlhooks.Sink) error { return s.Times(n) })
}

// Input is handed to those beside.
func (t *tee) Input(in *ggmlhooks.Input) error {
	return t.each(func(s ggmlhooks.Sink) error { return s.Input(in) })
}

// Sample is handed to those beside.
func (t *tee) Sample(c *ggmlhooks.Sample) error {
	return t.each(func(s ggmlhooks.Sink) error { return s.Sample(c) })
}

// Sync is handed to all.
func (t *tee) Sync(e ggmlhooks.Sync) error {
	return t.both(func(s ggmlhooks.Sink) error { return s.Sync(e) })
}

// close ends the recorders beside the capture's.
func (t *tee) close() error {
	var err error
	for _, b := range t.beside {
		err = errors.Join(err, b.Close())
	}
	return err
}

// machineOf is what the tap has to tell for a level of resource events. Memory is followed from the beginning of
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

// followsCells tells whether the cells of memories are followed.
func followsCells(tap *config.Tap) bool {
	return tap.KV || tap.ResourceLevel == "DETAILED" || tap.ResourceLevel == "VERBOSE"
}

// startWish is what the tap captures and tells from the start on; b is what there is of a run that is gone on with.
func startWish(tap *config.Tap, b *before) collect.Wish {
	return collect.Wish{
		Selection: b.selection(tap), MapsAlone: tap.AttentionAlone(), Off: tap.StartOff || !tap.Records(config.Activations),
		Machine: machineOf(tap.ResourceLevel, tap),
	}
}

// openBeside makes the recorders that were asked for beside that of tensors.
func (s *sink) openBeside() ([]beside, error) {
	var all []beside
	for _, recorder := range []struct {
		wanted bool
		open   func() (beside, error)
	}{
		{s.o.Tap.Records(config.Resource), func() (beside, error) { return s.openEvents() }},
		{followsCells(s.o.Tap), func() (beside, error) { return s.openKV() }},
		{s.o.Tap.Records(config.Regions), func() (beside, error) { return s.openRegions() }},
		{s.o.Tap.Records(config.Ledger), func() (beside, error) { return s.openLedger(), nil }}, // behind the map that it asks
		{s.samples != nil, func() (beside, error) { return s.openSamples() }},
		{s.host != nil, func() (beside, error) { return s.host, s.host.openFiles(s) }},
		{s.host != nil && s.host.waits != nil, func() (beside, error) { return s.host.waits, nil }},
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

// beside tells in words what was recorded beside tensors.
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
