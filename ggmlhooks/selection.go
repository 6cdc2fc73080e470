package ggmlhooks

// AttentionMode is how attention maps are recorded.
type AttentionMode uint8

// The attention modes. The numbers are shared with cgo/tap.
const (
	AttentionNone AttentionMode = iota // no attention maps
	// AttentionKeep keeps flash attention: post-RoPE Q and written K rows, mask and cells, of which readers recompute
	// the map.
	AttentionKeep
	AttentionExact // flash attention is turned off: the soft-max of the run itself
)

var attentionNames = [...]string{"", "keep", "exact"}

// String returns "", "keep" or "exact".
func (m AttentionMode) String() string { return attentionNames[m] }

// MarshalText writes the mode's name.
func (m AttentionMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Selection says which tensors of a run are captured. The zero value selects every computed node of every token.
type Selection struct {
	Granularity Granularity
	Layers      LayerSet // empty: every layer, and what belongs to none
	// Tensors are globs on node names (*, ?, [a-z]), without the layer suffix or with it: "l_out", "l_out-3",
	// "ffn_*". A name that a glob matches is honoured on a view too. A glob with a # means one of the nodes of a
	// name: "Qcur-0#2", and "Qcur-0#1" for the first. Empty: every computed node.
	Tensors []string
	// Points are captured besides what Tensors matches; where Tensors is empty, they alone are. Layers bounds those
	// that name no layer of their own, and no point of the whole model. Granularity does not bound them. Commands
	// refuse one whose own layer is outside of Layers.
	Points []PointRef
	Tokens TokenRule
	// Window is how many tokens are captured, counted from the first one that the selection applies to; 0: all.
	// Tokens has its say too.
	Window    int64
	Attention AttentionMode
	// SamplingRate is the share of elements that SampledSlices keeps, in (0, 1].
	SamplingRate float64
	// Seed makes the choice of SampledSlices reproducible.
	Seed uint64
}

// OutsideLayers is a point that names a layer which Layers leaves out; nil if there is none.
func (s *Selection) OutsideLayers() *PointRef {
	for i, ref := range s.Points {
		if ref.Layer != NoLayer && !s.Layers.Empty() && !s.Layers.Has(ref.Layer) {
			return &s.Points[i]
		}
	}
	return nil
}

// WantsPoint reports whether the selection means a point of a layer.
func (s *Selection) WantsPoint(p Point, layer int) bool {
	for _, ref := range s.Points {
		if ref.Means(p, layer) && (ref.Layer != NoLayer || p.Global() || s.Layers.Empty() || s.Layers.Has(layer)) {
			return true
		}
	}
	return false
}
