package ggmlhooks

import "fmt"

// Granularity is how much of the graph a capture takes. The names are those of STRAP-LLM; attention
// and MLP go by inferred component, not by a part of the name.
type Granularity uint8

// The granularities.
const (
	FullTensor    Granularity = iota // every selected node, whole
	SampledSlices                    // every selected node, a random share of its elements
	AttentionOnly                    // nodes of the attention component
	MLPOnly                          // nodes of the MLP component
)

var granularityNames = [...]string{"full_tensor", "sampled_slices", "attention_only", "mlp_only"}

// String returns the granularity's name as flags and files spell it.
func (g Granularity) String() string {
	if int(g) < len(granularityNames) {
		return granularityNames[g]
	}
	return fmt.Sprintf("granularity(%d)", uint8(g))
}

// ParseGranularity is the inverse of String.
func ParseGranularity(s string) (Granularity, error) {
	for i, name := range granularityNames {
		if name == s {
			return Granularity(i), nil
		}
	}
	return FullTensor, fmt.Errorf("unknown granularity %q: use one of %v", s, granularityNames)
}

// MarshalText writes the granularity's name.
func (g Granularity) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads the granularity's name.
func (g *Granularity) UnmarshalText(text []byte) error {
	parsed, err := ParseGranularity(string(text))
	if err != nil {
		return err
	}
	*g = parsed
	return nil
}
