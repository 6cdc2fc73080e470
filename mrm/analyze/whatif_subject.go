package analyze

import "github.com/llamatap/llamatap/memtrace"

// subject is a region, with what is known of it from a run.
type subject struct {
	Type   memtrace.RegionType
	Name   string
	Region int64 // its number in region_map.parquet
	// Regions is how many regions it stands for, of a type as a whole; 0: one.
	Regions int
	// Bytes is how much memory it takes.
	Bytes uint64
	// Seconds is how long it was watched.
	Seconds float64
	// Resolution is by how many seconds a time may be wrong: accesses within a graph have the time at which it begins.
	Resolution              float64
	BytesRead, BytesWritten uint64
	// Lives are for how long what was written was needed, from each write to the last read before the next one,
	// counted in bytes.
	Lives *memtrace.Survival
	// Written is bytes that were written, WrittenOnce those that were written once.
	Written, WrittenOnce int64
}

// writeOnce is the share of written bytes that were written once; false where none was written.
func (s *subject) writeOnce() (ratio float64, ok bool) {
	if s.Written == 0 {
		return 0, false
	}
	return float64(s.WrittenOnce) / float64(s.Written), true
}

// metrics are what mrm-trace's labels follow from: mrm_label by plain percentiles, which count a censored life as
// ended; mrm_label_censored by lower bounds of Kaplan and Meier, [memtrace.InsufficientMRM] where these do not decide.
func (s *subject) metrics() *memtrace.Metrics {
	m := &memtrace.Metrics{Written: s.Written, WrittenOnce: s.WrittenOnce}
	if s.Lives != nil {
		m.Retention = *s.Lives
	}
	return m
}

// day is in seconds.
const day = 86400

// perDay is what so much in the time that was watched makes in a day.
func (s *subject) perDay(amount float64) float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return amount * day / s.Seconds
}

// Bounds are two figures between which the true one lies. They differ where lives are censored: low counts them as
// ended with the run, which is then repeated all day; high takes what was needed at the end of the run for needed
// all day. And where times are not exact: low takes the shortest lives that they allow, high the longest.
type Bounds struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func exactly(v float64) Bounds { return Bounds{v, v} }

func (b Bounds) plus(o Bounds) Bounds    { return Bounds{b.Low + o.Low, b.High + o.High} }
func (b Bounds) times(by float64) Bounds { return Bounds{b.Low * by, b.High * by} }
