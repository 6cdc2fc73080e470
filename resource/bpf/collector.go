package bpf

import "time"

// A Collector is what a Watch asks once an interval. Snapshot returns what happened since the snapshot before,
// as a value that becomes one JSON line (or a slice of such values), by difference of counters that are never set
// back.
type Collector interface {
	Snapshot(now time.Time) (any, error)
	Close() error
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
