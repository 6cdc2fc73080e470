package resource

import "fmt"

// Source says how a figure was come by. A weaker one is smaller.
type Source uint8

// The sources.
const (
	Estimated Source = iota // by a formula of LRI, only where a flag asked for it
	Computed                // exactly, from shapes and sizes, or from other figures
	Measured                // by a clock, or seen to happen
)

var sourceNames = [...]string{"estimated", "computed", "measured"}

// String returns the source's name as it stands in files.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// parseSource is the inverse of String.
func parseSource(text string) (Source, error) {
	for i, name := range sourceNames {
		if name == text {
			return Source(i), nil
		}
	}
	return Estimated, fmt.Errorf("unknown source %q: use estimated, computed or measured", text)
}

// MarshalText writes the source's name.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the source's name.
func (s *Source) UnmarshalText(text []byte) error {
	parsed, err := parseSource(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

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

var timeSourceNames = [...]string{"", "op", "range", "graph", "synchronize"}

// String returns the time source's name as it stands in files.
func (t TimeSource) String() string {
	if int(t) < len(timeSourceNames) {
		return timeSourceNames[t]
	}
	return fmt.Sprintf("time_source(%d)", uint8(t))
}

// MarshalText writes the time source's name.
func (t TimeSource) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the time source's name.
func (t *TimeSource) UnmarshalText(text []byte) error {
	for i, name := range timeSourceNames {
		if name == string(text) && i != int(TimeNone) {
			*t = TimeSource(i)
			return nil
		}
	}
	return fmt.Errorf("unknown time source %q: use op, range, graph or synchronize", text)
}
