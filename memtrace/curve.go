package memtrace

import "iter"

// SurvivalStep is a duration at which lives ended, or were seen for the last time.
type SurvivalStep struct {
	// Duration is the largest of the lives that are counted here, in nanoseconds; it is at most 1/64 above the others.
	Duration int64
	Ended    int64 // lives that lasted so long
	Censored int64 // lives of which it is only known that they lasted so long
	// Alive is the share of all lives that is estimated to last longer (Kaplan and Meier).
	Alive float64
}

// Steps are the durations in order, with the curve of Kaplan and Meier.
func (s *Survival) Steps() iter.Seq[SurvivalStep] {
	return func(yield func(SurvivalStep) bool) {
		left, at := 1.0, s.Count
		for b := range s.ordered() {
			if b.events > 0 {
				left *= 1 - float64(b.events)/float64(at)
			}
			at -= b.events + b.censored
			if !yield(SurvivalStep{Duration: b.edge, Ended: b.events, Censored: b.censored, Alive: left}) {
				return
			}
		}
	}
}
