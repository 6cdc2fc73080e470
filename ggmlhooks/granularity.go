package ggmlhooks

import "github.com/llamatap/llamatap/store/label"

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

var granularityNames = label.Names[Granularity]{What: "granularity",
	All: []string{"full_tensor", "sampled_slices", "attention_only", "mlp_only"}}

// String returns the granularity's name as flags and files spell it.
func (g Granularity) String() string { return granularityNames.Text(g) }

// ParseGranularity is the inverse of String.
func ParseGranularity(s string) (Granularity, error) { return granularityNames.Parse(s) }

// MarshalText writes the granularity's name.
func (g Granularity) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads the granularity's name.
func (g *Granularity) UnmarshalText(text []byte) error {
	return label.Unmarshal(g, text, ParseGranularity)
}
