package capture

import (
	"math"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Attention names for readers which packets of a layer make up its attention map, and with which constants: flash
// attention computes softmax(scale · Q Kᵀ, soft-capped, + mask, with sinks) and never stores it.
type Attention struct {
	Ctx   uint32 `json:"ctx"`
	Layer int    `json:"layer"`
	// packets of the post-RoPE queries: of each token n_head · head_dim values, from value q_first of its row on
	Q     string `json:"q"`
	K     string `json:"k"`               // packets of the written keys, [head_dim · n_head_kv, n_tokens]
	Cells string `json:"cells"`           // packets that say into which cell of the cache each key row went
	Mask  string `json:"mask"`            // packets of the mask, [n_kv, n_tokens]
	Sinks string `json:"sinks,omitempty"` // packets of the attention sinks, [n_head]
	// packets of the map itself: flash attention was off, and the others are empty
	Map     string  `json:"map,omitempty"`
	QFirst  int64   `json:"q_first,omitempty"`
	NHead   int     `json:"n_head,omitempty"`
	NKV     int     `json:"n_head_kv"`
	HeadDim int     `json:"head_dim"`
	Scale   float32 `json:"scale"`
	MaxBias float32 `json:"max_bias,omitempty"`
	SoftCap float32 `json:"soft_cap,omitempty"`
	KType   int     `json:"k_type"` // ggml type of the keys that flash attention read: they were rounded to it
}

// attentions reports the attention of each layer of a graph that it is captured of.
func (g *graph) attentions(attach func(Attention)) {
	if g.Attention == ggmlhooks.AttentionNone {
		return
	}
	for i := range g.Nodes {
		switch n := &g.Nodes[i]; {
		case n.Op == "FLASH_ATTN_EXT" && len(n.Src) >= 4 && g.Attention == ggmlhooks.AttentionKeep:
			attach(flashAttention(g, i))
		case n.Op == "SOFT_MAX" && n.Component == ggmlhooks.ComponentAttention && n.Wanted:
			attach(Attention{
				Ctx: g.Ctx, Layer: n.Layer, Map: g.names[i], Scale: math.Float32frombits(uint32(n.OpParams[0])),
			})
		}
	}
}

func flashAttention(known *graph, i int) Attention {
	g := known.Graph
	n := &g.Nodes[i]
	a := Attention{
		Ctx: g.Ctx, Layer: n.Layer,
		Scale:   math.Float32frombits(uint32(n.OpParams[0])),
		MaxBias: math.Float32frombits(uint32(n.OpParams[1])),
		SoftCap: math.Float32frombits(uint32(n.OpParams[2])),
	}
	if q := g.Shown(n.Src[0]); q >= 0 {
		a.Q, a.QFirst = known.names[q], viewOffset(g, n.Src[0])/int64(g.Nodes[q].NB[0])
		a.NHead = int(g.Nodes[n.Src[0]].NE[2])
	}
	a.Mask = known.packetName(g.Shown(n.Src[3]))
	if len(n.Src) > 4 {
		a.Sinks = known.packetName(n.Src[4])
	}
	k := view(g, n.Src[1])
	if k != nil {
		a.HeadDim, a.NKV, a.KType = int(k.NE[0]), int(k.NE[2]), k.Type
	}
	cache := cacheOf(g, n.Src[1])
	for j := range g.Nodes {
		w := &g.Nodes[j]
		if w.Op == "SET_ROWS" && len(w.Src) >= 2 && strings.HasPrefix(w.Name, cache+" ") && cache != "" {
			a.K = known.names[j]
			a.Cells = known.packetName(w.Src[1])
		}
	}
	return a
}

// viewOffset is at which byte of the tensor that it shows a view begins.
func viewOffset(g *ggmlhooks.Graph, at int32) (bytes int64) {
	for at >= 0 && g.Nodes[at].View && len(g.Nodes[at].Src) > 0 {
		if n := &g.Nodes[at]; n.Op == "VIEW" {
			bytes += int64(uint64(uint32(n.OpParams[0])) | uint64(uint32(n.OpParams[1]))<<32)
		}
		at = g.Nodes[at].Src[0]
	}
	return bytes
}

func view(g *ggmlhooks.Graph, at int32) *ggmlhooks.Node {
	if at < 0 {
		return nil
	}
	return &g.Nodes[at]
}

// cacheOf is the name of the cache behind a view, or behind the copy that llama.cpp makes of an F32 cache for flash
// attention.
func cacheOf(g *ggmlhooks.Graph, at int32) string {
	at = g.Shown(at)
	for at >= 0 && g.Nodes[at].Op == "CPY" && len(g.Nodes[at].Src) > 0 {
		at = g.Shown(g.Nodes[at].Src[0])
	}
	if at < 0 && int(-1-at) < len(g.Leafs) {
		return g.Leafs[-1-at].Name
	}
	if at >= 0 { // the view shows what SET_ROWS returned: the cache itself
		return strings.TrimSuffix(g.Nodes[at].Name, " (view)")
	}
	return ""
}
