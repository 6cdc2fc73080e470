package bpf

import "time"

// A Collector is what a Watch asks once an interval. Snapshot returns what happened since the snapshot before,
// as a value that becomes one JSON line (or a slice of such values), by difference of counters that are never set
// back. Where that value depends on what a run did in the interval, Snapshot returns a *Draft of it.
type Collector interface {
	Snapshot(now time.Time) (any, error)
	Close() error
}

// A Draft is a snapshot that waits until it is known what a run did in its interval. One goroutine uses it at a time.
type Draft struct {
	EndNS    int64 // of the interval, CLOCK_MONOTONIC, ns
	complete func() any
	line     any
}

// NewDraft makes a draft of an interval that ended at endNS. complete is called once.
func NewDraft(endNS int64, complete func() any) *Draft {
	return &Draft{EndNS: endNS, complete: complete}
}

// LineOf completes what a collector's Snapshot returned, with what is known by now. It may be asked again.
func LineOf(snapshot any) any {
	d, ok := snapshot.(*Draft)
	if !ok {
		return snapshot
	}
	if d.complete != nil {
		d.line, d.complete = d.complete(), nil
	}
	return d.line
}

// A Follower is a collector to whose target processes may be added while it runs, where the target is restricted to
// processes.
type Follower interface {
	Collector
	AddPID(pid int) error
}

// A Costed collector reports the cost of its programs since they were loaded.
type Costed interface {
	Programs() ([]ProgramStat, error)
}

// ProgramStat is what a program has cost since it was loaded, as far as the kernel counted: EnableStats makes it count.
type ProgramStat struct {
	Name  string        `json:"program"`
	Runs  uint64        `json:"runs"`
	Time  time.Duration `json:"time_ns"`
	PerNS float64       `json:"ns_per_run"` // 0 where nothing was counted
}
