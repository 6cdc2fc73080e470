package resource

import (
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/store/label"
)

// Level is the amount of detail. Each level includes the events of the previous one; [Level.Includes] is the table.
type Level uint8

// The levels.
const (
	Minimal  Level = iota // executions as a whole; nothing in the model's process is waited for
	Detailed              // layers and components with their times
	Verbose               // every op
	Off                   // while a run is live: nothing but the session, changes of the level and losses
)

var levelNames = label.Names[Level]{What: "level", All: []string{"MINIMAL", "DETAILED", "VERBOSE", "OFF"}}

// String returns the level's name as files, flags and LRI spell it.
func (l Level) String() string { return levelNames.Text(l) }

// ParseLevel reads a level that a user may ask for, in either case. Off is none of them.
func ParseLevel(s string) (Level, error) {
	for i, name := range levelNames.All[:Off] {
		if strings.EqualFold(name, s) {
			return Level(i), nil
		}
	}
	return Minimal, fmt.Errorf("unknown level %q: use MINIMAL, DETAILED or VERBOSE", s)
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the level's name, Off's too.
func (l *Level) UnmarshalText(text []byte) error {
	if string(text) == Off.String() {
		*l = Off
		return nil
	}
	return label.Unmarshal(l, text, ParseLevel)
}

// MinimalAllocation is the smallest allocation in bytes that MINIMAL reports, as in LRI.
const MinimalAllocation = 1 << 20

// from is the lowest level that includes a kind.
var from = [kindCount]Level{
	KindLayerBegin: Detailed, KindLayerEnd: Detailed, KindComponentBegin: Detailed, KindComponentEnd: Detailed,
	KindHandoff: Detailed,
	KindKV:      Detailed, KindMLP: Detailed, KindRouting: Detailed, KindDeallocation: Detailed, KindSampling: Verbose,
	KindGraphEnergy: Detailed, KindTensor: Verbose, KindStepBegin: Verbose, KindStepEnd: Verbose,
}

// Includes reports whether this level includes events of a kind. Two kinds are included at every level, but differ: see
// [MinimalAllocation], and [KindCompute], which there is once per graph, once per component of a layer or once per op.
func (l Level) Includes(k Kind) bool {
	if l == Off {
		switch k {
		case KindSessionStart, KindTrackingBegin, KindSummary, KindSessionEnd, KindLevel, KindLoss, KindEnergy,
			KindRequestEnergy:
			return true
		}
		return false
	}
	return k < kindCount && l >= from[k]
}
