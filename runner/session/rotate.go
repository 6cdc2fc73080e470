//go:build linux

package session

import (
	"time"

	"github.com/llamatap/llamatap/config"
)

// used is the most that the run takes on the disk if nothing is added, without what room.beside counts, and what of
// it is not in files yet.
func (s *sink) used() (all, waiting int64) {
	for i := range s.series.places {
		if p := &s.series.places[i]; p.Removed.IsZero() {
			all += p.Bytes
		}
	}
	if e := s.series.ending; e != nil {
		all, waiting = all+e.size, waiting+e.size
	}
	all += max(0, s.reserve.held()-s.current.sealBytes())
	if s.segments() {
		all += sealRoom + int64(len(s.series.places))*placeBytes
	}
	packed := s.trace.waiting(s.o.Tap.Records(config.Samples))
	return all + s.current.size() + packed, waiting + s.current.waiting() + packed
}

// limitAhead says how much room the disk may keep ahead of what is written, in the segment that is written and in
// those that follow.
func (s *sink) limitAhead(n int64) {
	s.ahead = min(n, int64(s.o.Tap.Preallocate))
	s.current.stream.LimitAhead(s.ahead)
}

// placeBytes is the most that a segment takes in the run's own metadata and manifest.
const placeBytes = 768

// removeOldest removes the oldest sealed segment to make room. It waits for one that is being sealed, if that is
// the only one.
func (s *sink) removeOldest(cause string) bool {
	if s.o.Tap.MaxDisk.Action != config.DiskRotate {
		return false
	}
	for {
		for i := range s.series.places {
			if p := &s.series.places[i]; p.Removed.IsZero() {
				p.Removed, p.RemovedFor = time.Now().UTC(), cause
				return s.dir.RemoveSegment(p.Name) == nil
			}
		}
		if s.series.ending == nil || s.series.wait() != nil {
			return false
		}
	}
}
