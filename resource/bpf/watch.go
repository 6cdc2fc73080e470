package bpf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"
)

// A Source is a collector and where its lines go.
type Source struct {
	Name      string // what the user calls it: block, system, prof
	Collector Collector
	Lines     Lines
}

// Lines takes lines without line feeds.
type Lines interface {
	Append(line []byte) error
}

// Watch asks sources once an interval. Its methods are for one goroutine.
type Watch struct {
	interval time.Duration
	sources  []Source
	buf      bytes.Buffer
	next     time.Time
	known    func(ns int64) bool
	held     []held // oldest first
	// Snapshots is how many times the sources were asked, Late how many intervals passed without, because asking
	// took too long.
	Snapshots, Late uint64
	// Cost is the time that asking and writing took.
	Cost time.Duration
}

// NewWatch makes a watch. Its first interval begins at now.
func NewWatch(interval time.Duration, now time.Time, sources ...Source) *Watch {
	return &Watch{interval: interval, sources: sources, next: now.Add(interval)}
}

// held is a draft that waits.
type held struct {
	lines Lines
	draft *Draft
}

// Hold makes drafts wait until known says that what the run did up to a time on CLOCK_MONOTONIC is known.
func (w *Watch) Hold(known func(ns int64) bool) { w.known = known }

// mostHeld is how many drafts wait. Beyond that the oldest are written with what is known of the run.
const mostHeld = 256

// Ask takes a snapshot of each source, and appends its lines and those of earlier drafts that need no longer wait. A
// source that fails is left out from then on, and its error returned once; the others continue.
func (w *Watch) Ask(now time.Time) error {
	began := time.Now()
	var errs []error
	kept := w.sources[:0]
	for _, s := range w.sources {
		if err := w.ask(s, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err), s.Collector.Close())
			continue
		}
		kept = append(kept, s)
	}
	w.sources = kept
	errs = append(errs, w.release())
	w.Snapshots++
	for w.next = w.next.Add(w.interval); !w.next.After(now); w.next = w.next.Add(w.interval) {
		w.Late++
	}
	w.Cost += time.Since(began)
	return errors.Join(errs...)
}

// Running is the number of sources that have not failed.
func (w *Watch) Running() int { return len(w.sources) }

func (w *Watch) ask(s Source, now time.Time) error {
	said, err := s.Collector.Snapshot(now)
	if err != nil {
		return err
	}
	if d, ok := said.(*Draft); ok && w.known != nil {
		w.held = append(w.held, held{s.Lines, d})
		return nil
	}
	return w.write(s.Lines, said)
}

// release writes the drafts that need no longer wait.
func (w *Watch) release() error {
	for len(w.held) > 0 && (len(w.held) > mostHeld || w.known(w.held[0].draft.EndNS)) {
		h := w.held[0]
		w.held = slices.Delete(w.held, 0, 1)
		if err := w.write(h.lines, h.draft); err != nil {
			return err
		}
	}
	return nil
}

// writeAll writes the drafts that still wait, with what is known.
func (w *Watch) writeAll() error {
	var errs []error
	for _, h := range w.held {
		errs = append(errs, w.write(h.lines, h.draft))
	}
	w.held = nil
	return errors.Join(errs...)
}

// write appends the lines of a snapshot.
func (w *Watch) write(to Lines, said any) error {
	defer func() {
		if w.buf.Cap() > keptBytes {
			w.buf = bytes.Buffer{}
		}
	}()
	lines, err := encode(&w.buf, LineOf(said))
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := to.Append(line); err != nil {
			return err
		}
	}
	return nil
}

// keptBytes is how large a buffer may be that is used again. A line of many threads takes megabytes, and may be the
// only one.
const keptBytes = 1 << 20

// encode writes what a collector said as JSON lines, ASCII alone, into buf. A slice is a line for each of its elements.
func encode(buf *bytes.Buffer, said any) ([][]byte, error) {
	all := []any{said}
	if v := reflect.ValueOf(said); v.Kind() == reflect.Slice {
		all = all[:0]
		for i := range v.Len() {
			all = append(all, v.Index(i).Interface())
		}
	}
	buf.Reset()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	for _, one := range all {
		if err := enc.Encode(one); err != nil {
			return nil, fmt.Errorf("write a snapshot as JSON: %w", err)
		}
	}
	var lines [][]byte
	for line := range bytes.Lines(buf.Bytes()) {
		lines = append(lines, ascii(bytes.TrimSuffix(line, []byte{'\n'})))
	}
	return lines, nil
}

// ascii returns a JSON line with everything beyond ASCII escaped.
func ascii(line []byte) []byte {
	plain := true
	for _, c := range line {
		plain = plain && c < 0x80
	}
	if plain {
		return line
	}
	var b bytes.Buffer
	for _, r := range string(line) {
		switch {
		case r < 0x80:
			b.WriteByte(byte(r))
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
	}
	return b.Bytes()
}

// ErrNoCollector means that no source is left to be asked.
var ErrNoCollector = errors.New("no collector is left")

// Run asks the sources once an interval until ctx ends or count snapshots were taken (0: no end), and once more at the
// end, so that nothing is lost of the last, shorter interval. warn is called with the errors of sources that failed;
// the others continue.
func (w *Watch) Run(ctx context.Context, count uint64, warn func(error)) error {
	check := func(err error) {
		if err != nil {
			warn(err)
		}
	}
	defer func() { check(w.writeAll()) }()
	timer := time.NewTimer(time.Until(w.next))
	defer timer.Stop()
	for w.Running() > 0 {
		select {
		case <-ctx.Done():
			check(w.Ask(time.Now()))
			return nil
		case <-timer.C:
		}
		if time.Until(w.next) > 0 {
			check(w.release())
		} else {
			check(w.Ask(time.Now()))
		}
		if count > 0 && w.Snapshots >= count {
			return nil
		}
		wait := time.Until(w.next)
		if len(w.held) > 0 {
			wait = min(wait, releaseInterval)
		}
		timer.Reset(wait)
	}
	return ErrNoCollector
}

// releaseInterval is how often it is looked at whether drafts need no longer wait.
const releaseInterval = 25 * time.Millisecond

// Close closes the collectors, and their lines where these can be closed.
func (w *Watch) Close() error {
	var errs []error
	for _, s := range w.sources {
		errs = append(errs, s.Collector.Close())
		if c, ok := s.Lines.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	w.sources = nil
	return errors.Join(errs...)
}
