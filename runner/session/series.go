//go:build linux

package session

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// series are the segments of a run that are done with, and the one that is being sealed beside the recording.
type series struct {
	places  []rundir.Segment // in order, removed ones included
	written stream.Stats     // of all of them
	kept    ggmlhooks.Count  // tensors of the run that they hold
	failure error            // why one had to be mended
	ending  *ending          // nil: none
}

// ending is a segment that is being sealed in a goroutine of its own, so that the model is not held up.
type ending struct {
	segment *segment
	size    int64 // the most that it takes
	seal    func() error
	done    chan error // one error, or nil
}

// segments reports whether the run is written in segments.
func (s *sink) segments() bool { return s.o.Tap.Segments() != config.Segment{} }

// firstSegment opens what is written first: the run itself, or its first segment.
func (s *sink) firstSegment() (*segment, error) {
	if !s.segments() {
		return s.openSegment(s.dir, 1)
	}
	return s.nextSegment(1)
}

func (s *sink) nextSegment(number int) (*segment, error) {
	dir, err := s.dir.Segment(number)
	if err != nil {
		return nil, err
	}
	g, err := s.openSegment(dir, number)
	if err != nil {
		os.RemoveAll(dir.Path())
	}
	return g, err
}

// turn goes on in a new segment when it is time, nothing is half written, and the segment before is sealed.
func (s *sink) turn() error {
	if s.halted != nil || !s.segments() {
		return nil
	}
	if err := errors.Join(s.series.poll(), s.series.failure); err != nil {
		return err
	}
	if s.series.ending != nil || !s.due() || !s.recorder.Whole() {
		return nil
	}
	next, err := s.nextSegment(s.current.place.Number + 1)
	if err != nil {
		return err
	}
	if err := s.carryOver(next); err != nil {
		next.stream.Close()
		next.tokens.Discard()
		os.RemoveAll(next.dir.Path())
		return err
	}
	old := s.current
	s.current = next
	s.end(old)
	return nil
}

// carryOver ends what the tokens file of the segment must have, and informs the next one which requests are going on.
func (s *sink) carryOver(next *segment) error {
	if err := s.recorder.FlushTokens(); err != nil {
		return err
	}
	for _, b := range s.requests {
		if err := next.stream.AppendRequest(b); err != nil {
			return err
		}
	}
	return nil
}

// due reports whether the segment is as large or as old as it shall become.
func (s *sink) due() bool {
	g, when := s.current, s.o.Tap.Segments()
	if g.empty() {
		return false
	}
	return when.Bytes > 0 && g.bytes() >= int64(when.Bytes) || when.Every > 0 && time.Since(g.place.Began) >= when.Every
}

// end seals a segment beside the recording.
func (s *sink) end(g *segment) {
	g.span = useSince(s.use(), g.base)
	m := s.segmentMetadata(g)
	losses := s.streamLosses(g)
	g.speller = speller{vocabs: maps.Clone(s.speller.vocabs), mute: s.speller.mute}
	e := &ending{segment: g, size: g.size(), done: make(chan error, 1)}
	e.seal = func() error {
		if err := g.close(time.Since(g.place.Began), false, losses, nil); err != nil {
			return err
		}
		return s.sealSegment(g, m)
	}
	s.series.ending = e
	go func() { e.done <- e.seal() }()
}

// sealSegment completes a segment's metadata with what its closed files say, and seals it.
func (s *sink) sealSegment(g *segment, m rundir.Metadata) error {
	if g.failure != nil {
		cut := g.span.Run.Written.Minus(g.kept)
		m.Account.AddLost(causeOf(g.failure), cut.Packets, cut.Bytes)
	}
	m.Account.Captured = amount(g.kept)
	m.Account.Check()
	m.Losses, m.Lossy = m.Account.Lost, len(m.Account.Lost) > 0
	m.Streams = []rundir.Stream{s.streamUse(*g.result)}
	g.place.Ended = m.Ended
	place := g.place
	m.Segment = &place
	if err := g.seal(m); err != nil {
		return err
	}
	s.dir.AddSegment(g.dir)
	return nil
}

// segmentMetadata is metadata.json of a segment as far as it is known before its files are closed.
func (s *sink) segmentMetadata(g *segment) rundir.Metadata {
	m := s.describe(g.span)
	m.RunID, m.Created = g.dir.ID(), g.place.Began
	m.Account = s.tally(g.span)
	return m
}

// poll takes note of a segment that has been sealed meanwhile.
func (r *series) poll() error {
	if r.ending == nil {
		return nil
	}
	select {
	case err := <-r.ending.done:
		return r.ended(err)
	default:
		return nil
	}
}

// settle waits until the segment that is being sealed is sealed, or could not be.
func (r *series) settle() {
	if r.ending != nil {
		r.ended(<-r.ending.done) // wait reports an error, if it stays one
	}
}

// wait waits for the segment that is being sealed. One that could not be is tried again: there may be room now.
func (r *series) wait() error {
	if r.ending == nil {
		return nil
	}
	err := <-r.ending.done
	if err == nil {
		return r.ended(nil)
	}
	return r.ended(r.ending.seal())
}

// ended puts the segment to the others. After an error it stays what it was, for wait to try again.
func (r *series) ended(err error) error {
	g := r.ending.segment
	if err != nil {
		r.ending.done <- err
		return fmt.Errorf("seal %s: %w", g.place.Name, err)
	}
	r.ending = nil
	r.places = append(r.places, g.place)
	r.written = addStats(r.written, *g.result)
	r.kept.Add(g.kept)
	r.failure = errors.Join(r.failure, g.failure)
	return nil
}

// endSeries seals the last segment and lists all of them in the run's directory. A last segment in which nothing
// was recorded is removed, unless it is the only one.
func (s *sink) endSeries() error {
	g := s.current
	if g.empty() && g.place.Number > 1 {
		if err := os.RemoveAll(g.dir.Path()); err != nil {
			return err
		}
	} else {
		m := s.segmentMetadata(g)
		g.span = useSince(s.use(), g.base) // what came after its files were closed is lost of it
		m.Account = s.tally(g.span)
		if s.halted != nil && g.failure == nil {
			cut := g.span.Run.Written.Minus(g.kept)
			m.Account.AddLost(s.halted.cause, cut.Packets, cut.Bytes)
		}
		m.Stopped = s.stopped()
		if err := s.sealSegment(g, m); err != nil {
			return err
		}
		s.series.places = append(s.series.places, g.place)
	}
	return nil
}
