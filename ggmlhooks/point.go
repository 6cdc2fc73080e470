package ggmlhooks

import (
	"fmt"
	"strconv"
	"strings"
)

// Point is a place in a transformer that interpretability tools name alike for every architecture. The names and
// their meaning are those of interp-engine. docs/POINTS.md lists them.
type Point uint8

// The points, in forward order.
const (
	PointEmbeddings Point = iota
	PointResidPre
	PointAttnIn
	PointQNormIn
	PointQNormOut
	PointKNormIn
	PointKNormOut
	PointValue
	PointAttnScores
	PointAttnProbs
	PointZ
	PointAttnGate
	PointAttnOut
	PointAttnOutPost
	PointResidMid
	PointMLPIn
	PointMLPPre
	PointMLPPreLinear
	PointMLPAct
	PointRouterLogits
	PointExpertWeights
	PointExpertIndices
	PointMLPOut
	PointMLPOutPost
	PointResidPost
	PointResidStreams
	PointAttnStreamCollapse
	PointAttnStreamWrite
	PointAttnStreamMix
	PointMLPStreamCollapse
	PointMLPStreamWrite
	PointMLPStreamMix
	PointFinalNorm
	PointLMHead
	NumPoints // how many there are
)

// pointWords are a point's name, its name in TransformerLens ("" where that has none) and its meaning.
type pointWords struct{ name, lens, meaning string }

// points has a row for each point, in the order of their numbers.
var points = [NumPoints]pointWords{
	{"embeddings", "", "token embeddings, scaled where the model scales them, without positions"},
	{"resid_pre", "hook_resid_pre", "residual stream that enters the layer"},
	{"attn_in", "attn.hook_in", "what the query, key and value projections read: after the norm"},
	{"q_norm_in", "attn.q_norm.hook_in", "queries before their norm"},
	{"q_norm_out", "attn.q_norm.hook_out", "queries after their norm, before RoPE"},
	{"k_norm_in", "attn.k_norm.hook_in", "keys before their norm"},
	{"k_norm_out", "attn.k_norm.hook_out", "keys after their norm, before RoPE"},
	{"value", "attn.hook_v", "values, to which the attention pattern is applied"},
	{"attn_scores", "attn.hook_attn_scores", "scores before the softmax: scaled, capped, masked"},
	{"attn_probs", "attn.hook_pattern", "attention pattern: the softmax of the scores"},
	{"z", "attn.hook_z", "heads' outputs, which the output projection reads"},
	{"attn_gate", "", "gate of the heads' outputs, before its sigmoid"},
	{"attn_out", "attn.hook_out", "what the output projection of attention writes"},
	{"attn_out_post", "hook_attn_out", "what attention adds to the residual stream: after a post norm"},
	{"resid_mid", "hook_resid_mid", "residual stream between attention and feed-forward network"},
	{"mlp_in", "mlp.hook_in", "what the feed-forward network reads: after the norm"},
	{"mlp_pre", "mlp.hook_pre", "what the activation function is applied to"},
	{"mlp_pre_linear", "mlp.hook_pre_linear", "the branch that the activated one is multiplied with"},
	{"mlp_act", "mlp.hook_post", "neurons: what the down projection reads"},
	{"router_logits", "", "logits of the router, one for each expert"},
	{"expert_weights", "", "weights of the chosen experts"},
	{"expert_indices", "mlp.hook_expert_indices", "numbers of the chosen experts, best first"},
	{"mlp_out", "mlp.hook_out", "what the feed-forward network writes, all experts summed"},
	{"mlp_out_post", "hook_mlp_out", "what the feed-forward network adds to the residual stream"},
	{"resid_post", "hook_resid_post", "residual stream that leaves the layer"},
	{"resid_streams", "", "streams of hyper-connections: all that leave the layer"},
	{"attn_stream_collapse", "attn_hc.hook_out", "streams: what attention reads, before its norm"},
	{"attn_stream_write", "attn_hc.hook_post", "streams: attention's weight on each"},
	{"attn_stream_mix", "attn_hc.hook_comb", "streams: their mix at attention"},
	{"mlp_stream_collapse", "mlp_hc.hook_out", "streams: what the network reads, before its norm"},
	{"mlp_stream_write", "mlp_hc.hook_post", "streams: the network's weight on each"},
	{"mlp_stream_mix", "mlp_hc.hook_comb", "streams: their mix at the network"},
	{"final_norm", "unembed.hook_in", "output of the last norm, which the output matrix reads"},
	{"lm_head", "", "what the output matrix writes, before scaling or capping"},
}

// moreLens are further names of TransformerLens for the same places.
var moreLens = map[string]Point{
	"hook_in": PointResidPre, "hook_out": PointResidPost, "hook_z": PointZ, "hook_v": PointValue,
	"hook_pattern": PointAttnProbs, "hook_attn_scores": PointAttnScores, "hook_post": PointMLPAct,
	"hook_pre": PointMLPPre, "hook_pre_linear": PointMLPPreLinear,
}

// String returns the point's name.
func (p Point) String() string {
	if p < NumPoints {
		return points[p].name
	}
	return fmt.Sprintf("point(%d)", uint8(p))
}

// Meaning says what the point is, in a few words.
func (p Point) Meaning() string { return points[p].meaning }

// LensName is the point's name in TransformerLens, without "blocks.N."; "" where that has none.
func (p Point) LensName() string { return points[p].lens }

// Global reports whether the point belongs to no layer.
func (p Point) Global() bool { return p == PointEmbeddings || p == PointFinalNorm || p == PointLMHead }

// MarshalText writes the point's name.
func (p Point) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the point's name.
func (p *Point) UnmarshalText(text []byte) error {
	ref, ok := ParsePoint(string(text))
	if !ok {
		return fmt.Errorf("unknown point %q", text)
	}
	*p = ref.Point
	return nil
}

// PointNames are the names of all points, in forward order.
func PointNames() []string {
	names := make([]string, NumPoints)
	for p := range names {
		names[p] = Point(p).String()
	}
	return names
}

// PointRef means a point, of one layer or of each.
type PointRef struct {
	Point Point
	Layer int // NoLayer: every layer that is selected
}

// Means reports whether the reference means the point in a layer.
func (r PointRef) Means(p Point, layer int) bool {
	return r.Point == p && (r.Layer == NoLayer || r.Layer == layer)
}

// String writes the reference as ParsePoint reads it.
func (r PointRef) String() string {
	if r.Layer == NoLayer {
		return r.Point.String()
	}
	return r.Point.String() + "." + strconv.Itoa(r.Layer)
}

// ParsePoint reads the name of a point: resid_post, resid_post.3 for that of layer 3, or TransformerLens' name for
// it, with "blocks.3." or without: blocks.3.hook_resid_post. ok is false for an unknown name.
func ParsePoint(name string) (ref PointRef, ok bool) {
	ref.Layer = NoLayer
	layered := false
	if rest, found := strings.CutPrefix(name, "blocks."); found {
		number, hook, _ := strings.Cut(rest, ".")
		if ref.Layer, ok = parsePointLayer(number); !ok {
			return ref, false
		}
		name, layered = hook, true
	} else if base, number, found := strings.Cut(name, "."); found {
		if layer, isLayer := parsePointLayer(number); isLayer {
			name, ref.Layer = base, layer
		}
	}
	if p, found := moreLens[name]; found {
		ref.Point = p
		return ref, true
	}
	for p, words := range points {
		if words.lens != "" && words.lens == name || words.name == name && !layered {
			ref.Point = Point(p)
			return ref, ref.Layer == NoLayer || !ref.Point.Global()
		}
	}
	return ref, false
}

func parsePointLayer(s string) (layer int, ok bool) {
	layer, err := strconv.Atoi(s)
	return layer, err == nil && layer >= 0 && layer < MaxLayers
}
