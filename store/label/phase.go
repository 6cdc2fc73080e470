package label

// Phase says what an execution of a graph, or one token row of it, was for. The numbers are stored in index files;
// never renumber them.
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

var phaseNames = Names[Phase]{What: "phase",
	All: []string{"unknown", "setup", "maintenance", "prefill", "decode", "teardown"}}

// String returns the phase's name as written in files.
func (p Phase) String() string { return phaseNames.Text(p) }

// ParsePhase is the inverse of String.
func ParsePhase(s string) (Phase, error) { return phaseNames.Parse(s) }

// MarshalText writes the phase's name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the phase's name.
func (p *Phase) UnmarshalText(text []byte) error { return Unmarshal(p, text, ParsePhase) }
