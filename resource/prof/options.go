package prof

import (
	"time"

	"github.com/llamatap/llamatap/resource"
)

// A Source makes further events of an interval: disk, mem, sched. It is asked once an interval, and what it returns is
// called once it is known what the run did in it. The events' headers are empty but for type and origin.
type Source func(now time.Time) (func() []resource.ProfEvent, error)

// A Stamper says what all events of an interval have in common.
type Stamper struct {
	Run    string            // of ids that say no phase: {run}-{number of the interval}
	Labels map[string]string // as --labels gave them
	// Correlate says what the model did in an interval, as a CorrID is written; "" where it did nothing. Nil where
	// no model is known.
	Correlate func(from, to time.Time) string
	// Uncorrelated makes correlation ids null (--disable-correlation).
	Uncorrelated bool
}

// next stamps an interval, by its number from 1 on, from from to now.
func (s *Stamper) next(number uint64, from, now time.Time, monoNS int64, length time.Duration) resource.ProfStamp {
	stamp := resource.ProfStamp{Now: now, MonoNS: monoNS, Interval: length, Labels: s.Labels}
	if s.Uncorrelated {
		return stamp
	}
	if s.Correlate != nil {
		stamp.CorrID = s.Correlate(from, now)
	}
	if stamp.CorrID == "" {
		stamp.CorrID = resource.CorrID{Run: s.Run, Interval: number}.String()
	}
	return stamp
}
