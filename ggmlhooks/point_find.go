package ggmlhooks

import (
	"fmt"
	"math"
	"strings"
)

// PointHow says how a point of a model can be had.
type PointHow uint8

// How a point can be had.
const (
	PointImpossible PointHow = iota // no tensor of the graph is it
	PointServed                     // it is a tensor of the graph
	PointRecomputed                 // it follows exactly from a tensor of the graph
)

var pointHows = [...]string{"impossible", "served", "recomputed"}

// String returns "impossible", "served" or "recomputed".
func (h PointHow) String() string { return pointHows[h] }

// MarshalText writes what String returns.
func (h PointHow) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (h *PointHow) UnmarshalText(text []byte) error {
	for i, name := range pointHows {
		if name == string(text) {
			*h = PointHow(i)
			return nil
		}
	}
	return fmt.Errorf("a point cannot be %q: use one of %v", text, pointHows)
}

// PointSite is where a graph has a point.
type PointSite struct {
	Point Point
	Layer int // NoLayer for a point of the whole model
	How   PointHow
	Node  int    // whose tensor is the point, or what it is recomputed from; -1: none
	Why   string // why it is impossible, or how it is recomputed from the node
}

// PointRecord says in a run's metadata.json which packets are a point that was selected, or why the model has none.
type PointRecord struct {
	Ctx    uint32   `json:"ctx"`
	Point  Point    `json:"point"`
	Layer  *int     `json:"layer"` // null for a point of the whole model
	How    PointHow `json:"how"`
	Tensor string   `json:"tensor,omitempty"` // name of the packets: of the point, or of what it is recomputed from
	Why    string   `json:"why,omitempty"`    // why it is impossible, or how it is recomputed
}

// LayerNumber is the point's layer, NoLayer for one of the whole model.
func (r PointRecord) LayerNumber() int {
	if r.Layer == nil {
		return NoLayer
	}
	return *r.Layer
}

// Same reports whether two records say the same.
func (r PointRecord) Same(q PointRecord) bool {
	layer := r.LayerNumber() == q.LayerNumber()
	r.Layer, q.Layer = nil, nil
	return layer && r == q
}

// Points finds the points of a graph: all of each layer, then those of the whole model. It goes by what reads what,
// and by the GGUF names of weights, which are the same for all architectures; names of nodes are not. A place that it
// does not recognise is impossible, never guessed.
func (g *Graph) Points() []PointSite {
	for i := range g.Nodes {
		for k, src := range g.Nodes[i].Src {
			isCast := g.Nodes[i].Op == "CPY" && k == 1 && int(src) == i // its target is itself
			if int(src) >= i && !isCast {
				return new(Graph).Points() // no graph that can be computed
			}
		}
	}
	f := newPointFinder(g)
	for _, l := range f.layers {
		l.find()
	}
	f.residuals()
	f.findModelPoints()
	var sites []PointSite
	for _, l := range f.layers {
		for p := range NumPoints {
			if !p.Global() {
				sites = append(sites, l.sites[p])
			}
		}
	}
	for p := range NumPoints {
		if p.Global() {
			sites = append(sites, f.model[p])
		}
	}
	return sites
}

// pointLayer is a layer whose points are looked for.
type pointLayer struct {
	*tracer
	prefix   string         // of the names of its weights: "blk.3."
	products map[string]int // the product with each weight: "attn_q" → node
	norms    map[string]int // the products of norms with their weights
	sites    [NumPoints]PointSite

	attention     bool
	mixIn, mixOut int // what attention, or what stands in its place, reads and writes; none
	mlpIn, mlpOut int // of the feed-forward network
	mix, mlp      pointJoin
}

// pointFinder looks for the points of a graph.
type pointFinder struct {
	*tracer
	layers []*pointLayer
	model  [NumPoints]PointSite
}

func newPointFinder(g *Graph) *pointFinder {
	f := &pointFinder{tracer: newTracer(g)}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for k := range n.Src {
			layer, weight := f.weight(n.Src[k])
			if !n.Computed || layer == NoLayer || layer >= MaxLayers {
				continue
			}
			for len(f.layers) <= layer {
				f.layers = append(f.layers, newPointLayer(f.tracer, len(f.layers)))
			}
			to := f.layers[layer].norms
			if n.Op == "MUL_MAT" || n.Op == "MUL_MAT_ID" {
				to = f.layers[layer].products
			}
			if _, known := to[weight]; !known {
				to[weight] = i
			}
		}
	}
	for p := range f.model {
		f.model[p] = PointSite{Point: Point(p), Layer: NoLayer, Node: none}
	}
	return f
}

func newPointLayer(t *tracer, layer int) *pointLayer {
	nowhere := pointJoin{none, none, none}
	l := &pointLayer{
		tracer: t, prefix: fmt.Sprintf("blk.%d.", layer), products: map[string]int{}, norms: map[string]int{},
		mixIn: none, mixOut: none, mlpIn: none, mlpOut: none, mix: nowhere, mlp: nowhere,
	}
	for p := range l.sites {
		l.sites[p] = PointSite{Point: Point(p), Layer: layer, Node: none}
	}
	return l
}

// setNode records that a node is the point.
func (s *PointSite) setNode(node int) {
	if node != none {
		s.How, s.Node, s.Why = PointServed, node, ""
	}
}

// from says that the point is recomputed from a node.
func (s *PointSite) from(node int, how string) { s.How, s.Node, s.Why = PointRecomputed, node, how }

// exclude records why points that were not found are impossible.
func (l *pointLayer) exclude(why string, points ...Point) {
	for _, p := range points {
		if l.sites[p].How == PointImpossible && l.sites[p].Why == "" {
			l.sites[p].Why = why
		}
	}
}

// mixers are the parts of a layer that let tokens look at each other: what they read, by the weights that read it, and
// the weight that writes.
var mixers = []struct {
	in  []string
	out string
}{
	{[]string{"attn_q", "attn_qkv", "attn_q_a"}, "attn_output"},
	{[]string{"ssm_in", "attn_qkv"}, "ssm_out"},
	{[]string{"shortconv.in_proj"}, "shortconv.out_proj"},
}

// find finds the points within the layer.
func (l *pointLayer) find() {
	for m, mixer := range mixers {
		if product, ok := l.products[mixer.out]; ok && l.mixOut == none {
			l.mixOut, l.attention = l.output(product), m == 0
			l.mixIn = l.reads(mixer.in...)
		}
	}
	if l.attention {
		l.findAttention()
	}
	l.findNetwork()
	l.mix = l.join(l.mixOut, l.mixIn, l.prefix)
	l.mlp = l.join(l.mlpOut, l.mlpIn, l.prefix)
	parallel := l.mixOut != none && l.mlpIn != none && !l.reaches(l.mixOut, l.mlpIn)
	l.findContributions(parallel)
	switch {
	case parallel:
		l.exclude("attention and feed-forward network run in parallel", PointResidMid)
	case l.mixOut == none:
		l.exclude("nothing stands before the feed-forward network in this layer", PointResidMid)
	case l.mlpOut == none:
		l.exclude("the layer has no feed-forward network", PointResidMid)
	case l.mlp.sum != none && l.mix.sum != none && l.reaches(l.mix.sum, l.mlp.stream):
		l.sites[PointResidMid].setNode(l.mlp.stream)
	}
	if !l.attention {
		l.exclude("the layer has no attention", PointAttnIn, PointQNormIn, PointQNormOut, PointKNormIn, PointKNormOut,
			PointValue, PointAttnScores, PointAttnProbs, PointZ, PointAttnGate, PointAttnOut, PointAttnOutPost)
	}
	if l.mlpOut == none {
		l.exclude("the layer has no feed-forward network", PointMLPIn, PointMLPPre, PointMLPPreLinear, PointMLPAct,
			PointRouterLogits, PointExpertWeights, PointExpertIndices, PointMLPOut, PointMLPOutPost)
	}
	streams := "the model has one residual stream"
	for weight := range l.products {
		if strings.HasPrefix(weight, "hc_") {
			streams = unrecognised
		}
	}
	l.exclude(streams, PointResidStreams, PointAttnStreamCollapse, PointAttnStreamWrite, PointAttnStreamMix,
		PointMLPStreamCollapse, PointMLPStreamWrite, PointMLPStreamMix)
}

const unrecognised = "its place in this graph is not recognised"

// reads is what the first of some weights is multiplied with.
func (l *pointLayer) reads(weights ...string) int {
	for _, w := range weights {
		if product, ok := l.products[w]; ok {
			return l.source(product, 1)
		}
	}
	return none
}

// findAttention finds the points of attention.
func (l *pointLayer) findAttention() {
	l.sites[PointAttnIn].setNode(l.mixIn)
	l.sites[PointAttnOut].setNode(l.mixOut)
	for _, q := range []struct {
		norm    string
		in, out Point
	}{{"attn_q_norm", PointQNormIn, PointQNormOut}, {"attn_k_norm", PointKNormIn, PointKNormOut}} {
		product, ok := l.norms[q.norm]
		if !ok {
			l.exclude("queries and keys have no norm", q.in, q.out)
			continue
		}
		if in := l.beforeNorm(product, l.prefix+q.norm); in != product {
			l.sites[q.in].setNode(in)
			l.sites[q.out].setNode(l.biased(product, l.prefix+q.norm))
		}
	}
	l.findValue()
	z := l.source(l.products["attn_output"], 1)
	l.sites[PointZ].setNode(z)
	l.exclude("the outputs of heads have no gate", PointAttnGate)
	if z == none {
		return
	}
	if n := &l.g.Nodes[z]; n.Op == "MUL" {
		for k := range 2 {
			if gate := l.source(z, k); gate != none && l.g.Nodes[gate].Op == "SIGMOID" {
				l.sites[PointAttnGate].setNode(l.source(gate, 0))
			}
		}
	}
	l.findPattern(z)
}

// findValue finds the values: what is written to their cache, or what their projection writes.
func (l *pointLayer) findValue() {
	l.exclude("values are not a tensor of their own: attention reads a latent", PointValue)
	for i := range l.g.Nodes {
		n := &l.g.Nodes[i]
		if n.Op != "SET_ROWS" || !n.Computed {
			continue
		}
		part, layer, ok := CacheTensor(n.Name)
		if !ok {
			src, _ := n.SrcAt(2)
			part, layer, ok = CacheTensor(l.leafName(src))
		}
		if !ok || part != 'v' || layer != l.sites[0].Layer {
			continue
		}
		written := l.source(i, 0)
		if written == none {
			return
		}
		// A cache of few bits is written rotated: that is the projection's output times a matrix that is not a weight.
		if n := &l.g.Nodes[written]; n.Op == "MUL_MAT" {
			if layer, _ := l.weight(n.Src[0]); layer == NoLayer {
				break
			}
		}
		l.sites[PointValue].setNode(written)
		return
	}
	if product, ok := l.products["attn_v"]; ok {
		l.sites[PointValue].setNode(l.output(product))
	}
}

// findPattern finds the softmax that heads' outputs were computed with.
func (l *pointLayer) findPattern(z int) {
	flash, softmax := l.core(z, 8)
	switch {
	case flash:
		l.exclude("flash attention forms no matrix of scores: run with -fa off, or record maps with --tap-attention",
			PointAttnScores, PointAttnProbs)
	case softmax != none:
		l.sites[PointAttnProbs].setNode(softmax)
		n := &l.g.Nodes[softmax]
		scores := l.source(softmax, 0)
		if math.Float32frombits(uint32(n.OpParams[1])) != 0 {
			l.exclude("each head adds distances of its own to the scores", PointAttnScores)
		} else if scores != none {
			scale := math.Float32frombits(uint32(n.OpParams[0]))
			how := fmt.Sprintf("times %g", scale)
			if _, masked := n.SrcAt(1); masked {
				how += ", plus the mask"
			}
			l.sites[PointAttnScores].from(scores, how)
		}
	}
}

// residuals finds what enters and leaves each layer. What leaves a layer is what the next one reads.
func (f *pointFinder) residuals() {
	for i, l := range f.layers {
		first := l.mix
		if l.mixOut == none {
			first = l.mlp
		}
		l.sites[PointResidPre].setNode(first.stream)
		if i > 0 && first.stream != none {
			f.layers[i-1].leaves(first.stream)
		}
	}
	if norm, _ := f.head(); norm != none && len(f.layers) > 0 {
		f.layers[len(f.layers)-1].leaves(f.allRows(f.beforeNorm(norm, "output_norm.")))
	}
	for _, l := range f.layers {
		for p := range NumPoints {
			l.exclude(unrecognised, p)
		}
	}
}

// leaves says which node leaves the layer, if it is computed from the last sum with the stream.
func (l *pointLayer) leaves(node int) {
	if sum := max(l.mix.sum, l.mlp.sum); sum != none && l.reaches(sum, node) {
		l.sites[PointResidPost].setNode(node)
	}
}

// head finds the norm that the output matrix reads, and its product. A graph of embeddings has the norm alone.
func (f *pointFinder) head() (norm, product int) {
	for i := range f.g.Nodes {
		n := &f.g.Nodes[i]
		if n.Op != "MUL_MAT" || !n.Computed || len(n.Src) < 2 {
			continue
		}
		if name := f.leafName(n.Src[0]); name == "output.weight" || name == "token_embd.weight" {
			norm = f.source(i, 1)
			if norm != none && f.beforeNorm(norm, "output_norm.") == norm {
				norm = none
			}
			return norm, i
		}
	}
	for i := len(f.g.Nodes) - 1; i >= 0; i-- {
		for _, src := range f.g.Nodes[i].Src {
			if strings.HasPrefix(f.leafName(src), "output_norm.") {
				return i, none
			}
		}
	}
	return none, none
}

// findModelPoints finds the points that belong to no layer.
func (f *pointFinder) findModelPoints() {
	for i := range f.g.Nodes {
		n := &f.g.Nodes[i]
		if n.Op != "GET_ROWS" || !n.Computed || len(n.Src) < 2 || f.leafName(n.Src[0]) != "token_embd.weight" {
			continue
		}
		f.model[PointEmbeddings].setNode(i)
		for _, r := range f.readers[i] {
			if f.scales(&f.g.Nodes[r]) {
				f.model[PointEmbeddings].setNode(int(r))
			}
		}
		break
	}
	norm, product := f.head()
	f.model[PointFinalNorm].setNode(norm)
	f.model[PointLMHead].setNode(f.output(product))
	for p := range f.model {
		if f.model[p].How == PointImpossible {
			f.model[p].Why = unrecognised
		}
	}
	if product == none {
		f.model[PointLMHead].Why = "the graph computes no logits"
	}
}
