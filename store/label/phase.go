package label

import "fmt"

// Phase says what an execution of a graph, or one token row of it, was for. The numbers stand in index files; never
// renumber them.
type Phase uint8

// The phases.
const (
	PhaseUnknown     Phase = iota // not yet decided
	PhaseSetup                    // warm-up, probe or fitting: computed and thrown away before the run proper
	PhaseMaintenance              // work on the memory (context shift, state moves), no tokens
	PhasePrefill                  // prompt tokens
	PhaseDecode                   // tokens that were generated one step at a time
	PhaseTeardown                 // after the last token
)

var phaseNames = [...]string{"unknown", "setup", "maintenance", "prefill", "decode", "teardown"}

// String returns the phase's name as it stands in files.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// ParsePhase is the inverse of String.
func ParsePhase(s string) (Phase, error) {
	for i, name := range phaseNames {
		if name == s {
			return Phase(i), nil
		}
	}
	return PhaseUnknown, fmt.Errorf("unknown phase %q: use one of %v", s, phaseNames)
}

// MarshalText writes the phase's name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the phase's name.
func (p *Phase) UnmarshalText(text []byte) error {
	parsed, err := ParsePhase(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
