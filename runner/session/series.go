//go:build linux

package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// series are the segments of a run that are done with, and the one that is being sealed beside the recording.
type series struct {
	run     *run
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

// wait waits for the segment that is being sealed. One that could not be is tried again: there may be room now.
func (r *series) wait() error {
	if r.ending == nil {
		return nil
	}
	err := <-r.ending.done
	if err != nil {
		err = r.ending.seal()
	}
	return r.ended(err)
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

// removeOldest removes the oldest sealed segment to make room. It waits for one that is being sealed, if that is
// the only one.
func (r *series) removeOldest(cause string) bool {
	if r.run.o.Tap.MaxDisk.Action != config.DiskRotate {
		return false
	}
	for {
		for i := range r.places {
			if p := &r.places[i]; p.Removed.IsZero() {
				p.Removed, p.RemovedFor = time.Now().UTC(), cause
				return r.run.dir.RemoveSegment(p.Name) == nil
			}
		}
		if r.ending == nil || r.wait() != nil {
			return false
		}
	}
}

func addStats(a, b stream.Stats) stream.Stats {
	a.Packets, a.SrcBytes = a.Packets+b.Packets, a.SrcBytes+b.SrcBytes
	a.RawBytes, a.Stored = a.RawBytes+b.RawBytes, a.Stored+b.Stored
	a.Saturated, a.Underflow = a.Saturated+b.Saturated, a.Underflow+b.Underflow
	a.PackNS, a.WriteNS, a.HashNS = a.PackNS+b.PackNS, a.WriteNS+b.WriteNS, a.HashNS+b.HashNS
	return a
}

// placeBytes is the most that a segment takes in the run's own metadata and manifest.
const placeBytes = 768
