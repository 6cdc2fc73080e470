package intervene

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// shape is what a graph depends on: sequences of one length, which end with token last of the prompt.
type shape struct{ sequences, length, last int }

// row is the row of a token of a sequence in a tensor that has a row for each token, or one for each output: for each
// last token. ok is false where there is none.
func (s shape) row(sequence, token int, outputs bool) (row int, ok bool) {
	if outputs {
		return sequence, token == s.last
	}
	at := token - (s.last + 1 - s.length)
	return sequence*s.length + at, at >= 0
}

// place is where a graph has a point.
type place struct {
	node     int    // at which the graph is cut
	offset   uint64 // of the point in the node's tensor
	span     int    // bytes of the point, gaps included
	ne       [4]int64
	nb       [4]uint64
	rowDims  []int // dimensions that number the rows, the fastest first
	outputs  bool  // only output tokens have a row
	from, to int   // columns of a row that are the point
	raw      bool  // values are whole numbers, which can only be copied
	heads    int   // 0: the point has none
}

// run is a part of a row that is contiguous.
type run struct {
	at uint64 // bytes from the beginning of the node's tensor
	n  int    // values
}

// valueBytes is the size of a value: points are F32, or I32.
const valueBytes = 4

const typeF32, typeI32 = 0, 26 // of ggml

// layout finds the points of a graph. why says of the others why they cannot be changed.
func layout(g *llama.WatchGraph, s shape, heads headCounts) (places map[ggmlhooks.PointRef]*place,
	why map[ggmlhooks.PointRef]string) {
	places, why = map[ggmlhooks.PointRef]*place{}, map[ggmlhooks.PointRef]string{}
	for _, site := range g.Points() {
		ref := ggmlhooks.PointRef{Point: site.Point, Layer: site.Layer}
		if site.How == ggmlhooks.PointImpossible {
			why[ref] = site.Why
		} else if p, err := locate(g, &site, s, heads); err != nil {
			why[ref] = err.Error()
		} else {
			places[ref] = p
		}
	}
	return places, why
}

// locate finds out how a point's values lie, and where the graph must be cut so that a change reaches all readers.
func locate(g *llama.WatchGraph, site *ggmlhooks.PointSite, s shape, heads headCounts) (*place, error) {
	n := &g.Nodes[site.Node]
	p := &place{node: site.Node, ne: n.NE, nb: n.NB, raw: n.Type == typeI32, heads: heads.headsOf(site.Point,
		site.Layer)}
	if n.Type != typeF32 && n.Type != typeI32 {
		return nil, fmt.Errorf("its values have ggml's type %d, not F32", n.Type)
	}
	if !n.Computed { // a view: its values exist, and can be changed, when its root is computed
		p.node, p.offset = g.Root[site.Node], g.Offset[site.Node]
		if p.node < 0 {
			return nil, fmt.Errorf("it is a view of a weight, a cache or an input")
		}
		for i := p.node + 1; i < site.Node; i++ {
			if g.Nodes[i].Computed && g.Root[i] == p.node {
				return nil, fmt.Errorf("it is computed in place, in several steps")
			}
		}
	}
	p.span = valueBytes
	for d := range n.NE {
		p.span += int(n.NE[d]-1) * int(n.NB[d])
	}
	pattern := site.Point == ggmlhooks.PointAttnScores || site.Point == ggmlhooks.PointAttnProbs
	switch tokens := int64(s.sequences * s.length); {
	case pattern:
		p.rowDims, p.heads = []int{1, 3}, int(n.NE[2])
		if n.NE[1]*n.NE[3] != tokens {
			return nil, fmt.Errorf("its rows are not those of the tokens")
		}
	default:
		first := 1
		if site.Point == ggmlhooks.PointExpertWeights {
			first = 2
		}
		if p.rowDims = trailing(n.NE, first, tokens); p.rowDims == nil {
			p.rowDims, p.outputs = trailing(n.NE, first, int64(s.sequences)), true
		}
		if p.rowDims == nil {
			return nil, fmt.Errorf("its rows are not those of the tokens")
		}
	}
	p.to = p.columns()
	if site.How == ggmlhooks.PointRecomputed && !pattern {
		half := p.to / 2
		if strings.HasPrefix(site.Why, "second half") {
			p.from = half
		} else {
			p.to = half
		}
	}
	if p.heads > 0 && (p.to-p.from)%p.heads != 0 {
		p.heads = 0
	}
	return p, nil
}

// trailing are the last dimensions, from first on or fewer, if they number that many rows.
func trailing(ne [4]int64, first int, rows int64) (dims []int) {
	for ; first < 4; first++ {
		count := int64(1)
		dims = dims[:0]
		for d := first; d < 4; d++ {
			count *= ne[d]
			dims = append(dims, d)
		}
		if count == rows {
			return dims
		}
	}
	return nil
}

// columns is the number of values in a row of the tensor.
func (p *place) columns() int {
	n := p.ne[0] * p.ne[1] * p.ne[2] * p.ne[3]
	for _, d := range p.rowDims {
		n /= p.ne[d]
	}
	return int(n)
}

// runs returns the parts of a row of the point, all its columns or those of one head.
func (p *place) runs(row, head int) (runs []run) {
	at := p.offset
	for _, d := range p.rowDims {
		at += uint64(row%int(p.ne[d])) * p.nb[d]
		row /= int(p.ne[d])
	}
	across := []int{1, 2, 3} // dimensions of columns beside the first
	across = slices.DeleteFunc(across, func(d int) bool { return slices.Contains(p.rowDims, d) })
	from, to := p.from, p.to
	if head != AllHeads {
		width := (to - from) / p.heads
		from, to = from+head*width, from+(head+1)*width
	}
	for c, width := from, int(p.ne[0]); c < to; {
		i, begin, n := c/width, at+uint64(c%width)*p.nb[0], 1
		for _, d := range across {
			begin += uint64(i%int(p.ne[d])) * p.nb[d]
			i /= int(p.ne[d])
		}
		if p.nb[0] == valueBytes {
			n = min(width-c%width, to-c)
		}
		if last := len(runs) - 1; last >= 0 && runs[last].at+uint64(valueBytes*runs[last].n) == begin {
			runs[last].n += n
		} else {
			runs = append(runs, run{begin, n})
		}
		c += n
	}
	return runs
}

// headCounts are the heads of each layer, of queries and of keys and values; one number stands for all layers.
type headCounts struct{ query, kv []int64 }

// headsOf returns how many heads a point has in a layer, 0 where it has none.
func (h headCounts) headsOf(p ggmlhooks.Point, layer int) int {
	var counts []int64
	switch p {
	case ggmlhooks.PointQNormIn, ggmlhooks.PointQNormOut, ggmlhooks.PointZ, ggmlhooks.PointAttnGate:
		counts = h.query
	case ggmlhooks.PointKNormIn, ggmlhooks.PointKNormOut, ggmlhooks.PointValue:
		counts = h.kv
	}
	switch {
	case len(counts) == 1:
		return int(counts[0])
	case layer >= 0 && layer < len(counts):
		return int(counts[layer])
	}
	return 0
}
