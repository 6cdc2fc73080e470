package watch

import (
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// Request says what collectors look at, and how. What a collector has no use for it leaves alone.
type Request struct {
	Interval time.Duration
	Target   bpf.Target
	// Computed says how much of a time on CLOCK_MONOTONIC, in ns, the run computed graphs in; nil: there is no run.
	Computed func(from, to int64) resource.GraphTime
	Devices  []string // block devices by name; empty: all
	// StrapBuckets writes the bounds of buckets as system A did, twice too large.
	StrapBuckets bool

	// Of prof:
	Only            []string // disk, syscalls, mem, sched, sync, net; empty: all
	SampleReadWrite int      // one in so many reads and writes is timed; 0 is 1
	Labels          map[string]string
	NoCorrelation   bool
	Run             string // names the run in correlation ids
	// Correlate says what a time belonged to, as resource.CorrID writes it; nil: the number of the interval.
	Correlate func(from, to time.Time) string
}

// Opened is a collector that was opened, or could not be.
type Opened struct {
	Name      string
	Collector bpf.Collector
	Origin    string   // resource.OriginBPF and so on
	Missing   []string // what it has to do without, and why
	Err       error    // it could not be opened
}
