package prof

import (
	"time"

	"github.com/llamatap/llamatap/resource"
)

// A Source makes further events of an interval: disk, mem, sched. It is asked once an interval and leaves headers
// empty but for type and origin.
type Source func(now time.Time) ([]resource.ProfEvent, error)

// A Stamper says what all events of an interval have in common.
type Stamper struct {
	Run    string            // of ids that say no phase: {run}-{number of the interval}
	Labels map[string]string // as --labels gave them
	// Correlate says what the model did in an interval, as a CorrID is written; "" where it did nothing. Nil where
	// no model is known.
	Correlate func(from, to time.Time) string
	// Uncorrelated makes correlation ids null (--disable-correlation).
	Uncorrelated bool

	intervals uint64
}

// next stamps the interval from from to now.
func (s *Stamper) next(from, now time.Time, monoNS int64, length time.Duration) resource.ProfStamp {
	s.intervals++
	stamp := resource.ProfStamp{Now: now, MonoNS: monoNS, Interval: length, Labels: s.Labels}
	if s.Uncorrelated {
		return stamp
	}
	if s.Correlate != nil {
		stamp.CorrID = s.Correlate(from, now)
	}
	if stamp.CorrID == "" {
		stamp.CorrID = resource.CorrID{Run: s.Run, Interval: s.intervals}.String()
	}
	return stamp
}
