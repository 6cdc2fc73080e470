package bpf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
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

// Ask takes a snapshot of each source and appends its lines. A source that fails is left out from then on, and its
// error returned once; the others go on.
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
	defer func() {
		if w.buf.Cap() > keptBytes {
			w.buf = bytes.Buffer{}
		}
	}()
	lines, err := encode(&w.buf, said)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := s.Lines.Append(line); err != nil {
			return err
		}
	}
	return nil
}

// keptBytes is how large a buffer may be that is used again. A line of many threads takes megabytes, and may be the
// only one.
const keptBytes = 1 << 20

// encode writes what a collector said as JSON lines, ASCII alone, into buf. A slice is a line for each
// of its elements.
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

// ErrNoCollector says that no source is left to be asked.
var ErrNoCollector = errors.New("no collector is left")

// Run asks the sources once an interval until ctx ends or count snapshots were taken (0: no end), and once more at the
// end, so that nothing is lost of the last, shorter interval. warn is called with the errors of sources that failed;
// the others continue.
func (w *Watch) Run(ctx context.Context, count uint64, warn func(error)) error {
	timer := time.NewTimer(time.Until(w.next))
	defer timer.Stop()
	for w.Running() > 0 {
		select {
		case <-ctx.Done():
			if err := w.Ask(time.Now()); err != nil {
				warn(err)
			}
			return nil
		case <-timer.C:
		}
		if err := w.Ask(time.Now()); err != nil {
			warn(err)
		}
		if count > 0 && w.Snapshots >= count {
			return nil
		}
		timer.Reset(time.Until(w.next))
	}
	return ErrNoCollector
}

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
