package bpf

import "time"

// A Collector is what runner/watch asks every interval. Snapshot returns what happened since the snapshot before, as a value that becomes
// one JSON line (or a slice of such values), by difference of counters that are never set back.
type Collector interface {
	Snapshot(now time.Time) (any, error)
	Close() error
}
