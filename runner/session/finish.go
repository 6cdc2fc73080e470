//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// finish ends the recording and seals it. A directory in which nothing could be recorded is removed.
func (s *sink) finish(process *collect.Process, exit collect.Exit) error {
	s.host.stop()
	s.samples.stop()
	s.monitor.stop()
	if s.dir == nil {
		return errors.Join(s.host.Close(), s.samples.Close(), s.monitor.Close())
	}
	var err error
	if s.current != nil && s.caughtUp() && s.halted == nil {
		// Before what a program that was killed has left half done is ended: a resumed run does it as
		// a whole.
		err = s.checkpoints.last(s.current.stream, len(s.steering.changes) > 0)
	}
	if s.recorder != nil && s.halted == nil {
		if err := s.recorder.Finish(); err != nil {
			s.halt(err)
		}
	}
	if s.recorder != nil && s.halted != nil {
		s.recorder.Finish() // nothing is written: what is still open is counted
	}
	if s.current != nil {
		// A run that has not come again as far as it was is what it was: its tokens are those of its stream.
		err = errors.Join(err, s.closeCurrent(s.halted != nil && !s.halted.limited() || !s.caughtUp()))
	}
	s.reserve.release()
	err = errors.Join(err, s.tee.Close(), s.host.Close(), s.samples.Close(), s.monitor.Close(), s.series.wait())
	s.closeTrace()
	s.ended = true
	if err == nil && s.resumed != nil && s.caughtUp() {
		err = dropAside(s.dir.Path())
	}
	if failure := s.series.failure; failure != nil && s.halted == nil {
		s.noteHalt(failure)
	}
	if s.halted != nil && s.written().Packets == 0 && s.events == nil && s.regions == nil && s.ledger == nil && s.host == nil && (s.kv == nil || s.kv.file == nil) {
		os.RemoveAll(s.dir.Path())
		os.Remove(filepath.Dir(s.dir.Path())) // the model's folder, if that was its only run
		s.dir = nil
		return nil
	}
	err = errors.Join(err, s.steering.log.close(s.dir))
	if err == nil {
		err = s.seal(process, exit)
	}
	if err == nil && s.halted == nil && s.caughtUp() && !s.early && exit.Status == 0 && exit.Signal == 0 {
		s.checkpoints.drop()
	}
	if err != nil {
		if s.halted == nil && s.vanished() {
			s.noteHalt(err)
			return fmt.Errorf("%w; nothing is left: the run directory %s was removed while it was recorded", explain(err, s.o.Tap.Out), s.dir.Path())
		}
		return fmt.Errorf("%w; what was recorded is in %s, unsealed", explain(err, s.o.Tap.Out), s.dir.Path())
	}
	return nil
}

// seal makes the run a result: its last segment first, where it has segments.
func (s *sink) seal(process *collect.Process, exit collect.Exit) error {
	if !s.segments() {
		return s.current.seal(s.metadata(process, exit))
	}
	if err := s.endSeries(); err != nil {
		return err
	}
	if err := s.dir.WriteJSON(rundir.MetadataName, s.metadata(process, exit)); err != nil {
		return err
	}
	return s.dir.Seal()
}

// written is what the streams of all segments hold, removed ones included.
func (s *sink) written() stream.Stats {
	w := s.series.written
	if s.current == nil {
		return w
	}
	now := s.current.result
	if now == nil {
		stats := s.current.stream.Stats()
		now = &stats
	}
	return addStats(w, *now)
}

func addStats(a, b stream.Stats) stream.Stats {
	a.Packets, a.SrcBytes, a.RawBytes, a.Stored = a.Packets+b.Packets, a.SrcBytes+b.SrcBytes, a.RawBytes+b.RawBytes, a.Stored+b.Stored
	a.Saturated, a.Underflow = a.Saturated+b.Saturated, a.Underflow+b.Underflow
	a.PackNS, a.WriteNS, a.HashNS = a.PackNS+b.PackNS, a.WriteNS+b.WriteNS, a.HashNS+b.HashNS
	return a
}
