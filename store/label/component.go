package label

// Component is the part of a transformer (or state-space) layer that a node computes for. The tap infers it from
// the graph: from the weight that the node reads, else from the node's own name, else from its consumer, else from
// its source. The numbers are shared with cgo/tap and stored in index files; never renumber them.
type Component uint8

// The components.
const (
	ComponentOther     Component = iota // not inferred: a defect of the tap, never a normal answer
	ComponentInput                      // token or input embedding, before the first layer
	ComponentAttention                  // attention with its norm, projections, cache writes and softmax
	ComponentMLP                        // feed-forward with its norm, experts and router
	ComponentSSM                        // recurrent mixer (Mamba) with its norm, convolution and scan
	ComponentResidual                   // residual stream: the sums that enter or leave a layer's halves
	ComponentOutput                     // final norm, output rows, logits, pooling
	ComponentCache                      // work on the memory itself (shift, copy), only in maintenance graphs
)

var componentNames = Names[Component]{What: "component",
	All: []string{"other", "input", "attention", "mlp", "ssm", "residual", "output", "cache"}}

// String returns the component's name as written in files.
func (c Component) String() string { return componentNames.Text(c) }

// ParseComponent is the inverse of String.
func ParseComponent(s string) (Component, error) { return componentNames.Parse(s) }

// MarshalText writes the component's name.
func (c Component) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the component's name.
func (c *Component) UnmarshalText(text []byte) error { return Unmarshal(c, text, ParseComponent) }
