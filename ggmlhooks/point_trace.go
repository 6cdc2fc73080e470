package ggmlhooks

import (
	"strconv"
	"strings"
)

// tracer follows what a graph's nodes read.
type tracer struct {
	g       *Graph
	readers [][]int32 // of each node
}

// pointJoin is the sum by which a part of a layer adds to the residual stream.
type pointJoin struct {
	sum    int // none: not found
	branch int // what it adds
	stream int // to what
}

// none stands for a node that was not found.
const none = -1

func newTracer(g *Graph) *tracer {
	t := &tracer{g: g, readers: make([][]int32, len(g.Nodes))}
	for i := range g.Nodes {
		for _, src := range g.Nodes[i].Src {
			if src >= 0 {
				t.readers[src] = append(t.readers[src], int32(i))
			}
		}
	}
	return t
}

// weight takes the name of a weight of a layer apart: that of blk.3.attn_q.weight is layer 3, attn_q. Layers of
// vision and audio towers are others.
func (t *tracer) weight(src int32) (layer int, name string) {
	leaf := t.g.Origin(src)
	if leaf < 0 {
		return NoLayer, ""
	}
	rest, inBlock := strings.CutPrefix(t.g.Leafs[leaf].Name, "blk.")
	number, rest, cut := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	name, isWeight := strings.CutSuffix(rest, ".weight")
	if !inBlock || !cut || !isWeight || err != nil || layer < 0 {
		return NoLayer, ""
	}
	return layer, name
}

// leafName is the name of the leaf that a source shows; "" where it is a node.
func (t *tracer) leafName(src int32) string {
	if leaf := t.g.Origin(src); leaf >= 0 {
		return t.g.Leafs[leaf].Name
	}
	return ""
}

// shown follows views that show all of what they read to the node that computes it, or to a view of a part of that.
// It is none where a leaf is shown.
func (t *tracer) shown(src int32) int {
	for src >= 0 {
		n := &t.g.Nodes[src]
		if !n.View || len(n.Src) == 0 {
			return int(src)
		}
		if n.Src[0] >= 0 && elements(n.NE) != elements(t.g.Nodes[n.Src[0]].NE) {
			return int(src)
		}
		src = n.Src[0]
	}
	return none
}

func elements(ne [4]int64) int64 { return ne[0] * ne[1] * ne[2] * ne[3] }

// source is what source k of a node shows, or none.
func (t *tracer) source(node, k int) int {
	if src, ok := t.g.Nodes[node].SrcAt(k); ok {
		return t.shown(src)
	}
	return none
}

// allRows goes back from rows that were picked for output to those that they were picked from.
func (t *tracer) allRows(node int) int {
	for node != none && t.g.Nodes[node].Op == "GET_ROWS" {
		ids, _ := t.g.Nodes[node].SrcAt(1)
		leaf := t.g.Origin(ids)
		from := t.source(node, 0)
		if leaf < 0 || !t.g.Leafs[leaf].Input || from == none {
			return node
		}
		node = from
	}
	return node
}

// output returns what a module writes whose product with its weight is a node: with its bias, scale and adapters, whose
// names begin like the weight's.
func (t *tracer) output(product int) int {
	if product == none {
		return none
	}
	src, _ := t.g.Nodes[product].SrcAt(0)
	module := strings.TrimSuffix(t.leafName(src), "weight")
	if module == "" {
		return product
	}
	for at := product; ; {
		next := none
		for _, r := range t.readers[at] {
			n := &t.g.Nodes[r]
			if n.Op != "ADD" && n.Op != "MUL" && n.Op != "ADD_ID" || !n.Computed || len(n.Src) < 2 {
				continue
			}
			other := n.Src[0]
			if int(other) == at {
				other = n.Src[1]
			}
			if strings.HasPrefix(t.adapted(other), module) {
				next = int(r)
			}
		}
		if next == none {
			return at
		}
		at = next
	}
}

// adapted is the name of the leaf that a source shows, or of the matrix that an adapter computes it with.
func (t *tracer) adapted(src int32) string {
	for src >= 0 {
		n := &t.g.Nodes[src]
		if n.Op != "SCALE" && n.Op != "MUL_MAT" || len(n.Src) == 0 {
			break
		}
		src = n.Src[0]
	}
	return t.leafName(src)
}

// beforeNorm goes back through a norm with its weight and bias, whose names begin with a prefix. It returns the node
// itself where that is no such norm.
func (t *tracer) beforeNorm(node int, prefix string) int {
	for at := node; at != none; {
		n := &t.g.Nodes[at]
		switch n.Op {
		case "RMS_NORM", "NORM":
			return t.source(at, 0)
		case "ADD", "MUL":
			if len(n.Src) < 2 {
				return node
			}
			a, b := n.Src[0], n.Src[1]
			switch {
			case strings.HasPrefix(t.leafName(b), prefix):
				at = t.shown(a)
			case strings.HasPrefix(t.leafName(a), prefix):
				at = t.shown(b)
			default:
				return node
			}
		default:
			return node
		}
	}
	return node
}

// reaches reports whether node to is computed from node from.
func (t *tracer) reaches(from, to int) bool {
	return from <= to && t.flow(from, to, func(int, []bool) bool { return false })[to-from]
}

// flow follows what is computed from a node until visit returns true or last is reached. Element i of what it returns
// is of node from+i.
func (t *tracer) flow(from, last int, visit func(node int, derived []bool) bool) []bool {
	derived := make([]bool, max(last-from, 0)+1)
	derived[0] = true
	for i := from + 1; i <= last; i++ {
		for _, src := range t.g.Nodes[i].Src {
			if int(src) >= from && derived[int(src)-from] {
				derived[i-from] = true
			}
		}
		if derived[i-from] && visit(i, derived) {
			break
		}
	}
	return derived
}

// join finds the sum that adds what comes out of a part of a layer to the stream that the part reads, before its norm
// or, where it has none, as it is.
func (t *tracer) join(out, in int, prefix string) pointJoin {
	found := pointJoin{none, none, none}
	if out == none || in == none {
		return found
	}
	before := t.beforeNorm(in, prefix)
	t.flow(out, len(t.g.Nodes)-1, func(i int, derived []bool) bool {
		n := &t.g.Nodes[i]
		if n.Op != "ADD" || !n.Computed || len(n.Src) < 2 {
			return false
		}
		for k := range 2 {
			branch, stream := t.shown(n.Src[k]), t.allRows(t.shown(n.Src[1-k]))
			if branch >= out && derived[branch-out] && stream != none && (stream == in || stream == before) {
				found = pointJoin{i, t.allRows(branch), stream}
				return true
			}
		}
		return false
	})
	return found
}

// summed reports whether a sum reads the node, or its rows for output.
func (t *tracer) summed(node int) bool {
	for _, r := range t.readers[node] {
		n := &t.g.Nodes[r]
		if n.Op == "ADD" || n.Op == "GET_ROWS" && t.summed(int(r)) {
			return true
		}
	}
	return false
}

// core goes back from the outputs of heads to flash attention, or to the softmax.
func (t *tracer) core(at, steps int) (flash bool, softmax int) {
	if at == none || steps == 0 {
		return false, none
	}
	n := &t.g.Nodes[at]
	switch {
	case n.Op == "FLASH_ATTN_EXT":
		return true, none
	case n.View, n.Op == "CONT", n.Op == "CPY":
		src, _ := n.SrcAt(0)
		return t.core(t.shown(src), steps-1)
	case n.Op == "MUL_MAT":
		read := t.source(at, 1)
		if read != none && t.g.Nodes[read].Op == "SOFT_MAX" {
			return false, read
		}
		return t.core(read, steps-1)
	case n.Op == "MUL":
		if flash, softmax = t.core(t.source(at, 0), steps-1); !flash && softmax == none {
			return t.core(t.source(at, 1), steps-1)
		}
		return flash, softmax
	}
	return false, none
}

// scales reports whether a node multiplies each row of what it reads by one number.
func (t *tracer) scales(n *Node) bool {
	if n.Op != "MUL" || len(n.Src) < 2 || n.Src[1] >= 0 {
		return n.Op == "SCALE" && n.Computed
	}
	return t.g.Leafs[-1-n.Src[1]].NE[0] == 1
}

// biased is a norm's product with its weight, with the bias where there is one.
func (t *tracer) biased(product int, norm string) int {
	for _, r := range t.readers[product] {
		n := &t.g.Nodes[r]
		if n.Op == "ADD" && len(n.Src) == 2 && strings.HasPrefix(t.leafName(n.Src[1]), norm) {
			return int(r)
		}
	}
	return product
}
