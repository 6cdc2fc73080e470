package resource

import "github.com/llamatap/llamatap/store/label"

// Source says how a figure was come by. A weaker one is smaller.
type Source uint8

// The sources.
const (
	Estimated Source = iota // by a formula of LRI, only where a flag asked for it
	Computed                // exactly, from shapes and sizes, or from other figures
	Measured                // by a clock, or seen to happen
)

var sourceNames = label.Names[Source]{What: "source", All: []string{"estimated", "computed", "measured"},
	Use: "use estimated, computed or measured"}

// String returns the source's name as written in files.
func (s Source) String() string { return sourceNames.Text(s) }

// MarshalText writes the source's name.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the source's name.
func (s *Source) UnmarshalText(text []byte) error { return label.Unmarshal(s, text, sourceNames.Parse) }

// TimeSource says what a duration was measured of.
type TimeSource uint8

// The time sources.
const (
	TimeNone  TimeSource = iota // not timed
	TimeOp                      // one op: the one before it was timed too
	TimeRange                   // several nodes at once, or the first of a graph
	TimeGraph                   // a whole graph
	TimeSync                    // a whole graph on a device, up to the first synchronisation after it
)

var timeSourceNames = label.Names[TimeSource]{What: "time source",
	All: []string{"", "op", "range", "graph", "synchronize"},
	Use: "use op, range, graph or synchronize"}

// String returns the time source's name as written in files.
func (t TimeSource) String() string { return timeSourceNames.Text(t) }

// MarshalText writes the time source's name.
func (t TimeSource) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the time source's name.
func (t *TimeSource) UnmarshalText(text []byte) error {
	return label.Unmarshal(t, text, timeSourceNames.Parse)
}
