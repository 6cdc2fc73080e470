package oplog

import (
	"errors"
	"fmt"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Options says what a Recorder writes, and where. Lines, Now and SessionID must be given.
type Options struct {
	Level resource.Level
	// Lines is where events are written; its kinds, limits and the report of losses are the recorder's.
	Lines rundir.LineOptions
	// PerSecond is the most events of one kind that are written within a second; 0 = no limit. What there is only
	// once, phases and levels have none.
	PerSecond int
	// Now is CLOCK_MONOTONIC in nanoseconds.
	Now func() int64
	// StartNS is when the run began, by the same clock; 0: when the recorder is made.
	StartNS int64
	// UnixOffset is what must be added to it to make it a Unix time, in nanoseconds.
	UnixOffset int64
	SessionID  string
	// Text returns the text of a token of a context; nil, or false: not known.
	Text func(ctx uint32, token int32) (string, bool)
	// Threads is how many threads compute; 0 = not known.
	Threads int
	// Roofline is what the machine can do at most; nil: not measured, and no share of it is written.
	Roofline *resource.Roofline
	// Pressure returns LRI's low, medium or high, of PSI and the cgroup's limit; nil, or "": not known. It is
	// asked once per execution that is recorded in detail.
	Pressure func() string
	// Devices appends the samples of devices that were taken since it was called last; nil: there is none that can be
	// sampled. It is called whenever an execution ends, and by [Recorder.Sampled].
	Devices func(to *Readings)
	// Legacy fills LRI's keys by its formulas, tagged as estimated, next to what is measured.
	Legacy bool
}

var errIncomplete = errors.New("an option that must be given is not")

func (o *Options) check() error {
	if o.Lines.Create == nil || o.Lines.Name == "" || o.Now == nil || o.SessionID == "" {
		return fmt.Errorf("record resource events: %w (Lines, Now, SessionID)", errIncomplete)
	}
	return nil
}

// limits returns the most lines of each kind within a second.
func limits(perSecond int) []int {
	all := make([]int, len(resource.Kinds()))
	for k := range all {
		switch resource.Kind(k) {
		case resource.KindSessionStart, resource.KindTrackingBegin, resource.KindSummary, resource.KindSessionEnd,
			resource.KindLoss, resource.KindLevel, resource.KindPhase, resource.KindModel, resource.KindEnergy,
			resource.KindRequestEnergy:
		default:
			all[k] = perSecond
		}
	}
	return all
}
