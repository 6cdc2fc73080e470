package ggmlhooks

// NoMask stands for a mask that was not found.
const NoMask = -1

// Shown follows views to what they show: a node that computes, or -1-i for leaf i.
func (g *Graph) Shown(src int32) int32 {
	for src >= 0 && g.Nodes[src].View && len(g.Nodes[src].Src) > 0 {
		src = g.Nodes[src].Src[0]
	}
	return src
}

// Origin follows views and conversions to the leaf that they show. It returns the leaf's number, or -1.
func (g *Graph) Origin(src int32) int {
	for src >= 0 {
		n := &g.Nodes[src]
		if len(n.Src) == 0 || !n.View && n.Op != "CPY" && n.Op != "CONT" && n.Op != "DUP" {
			return -1
		}
		src = n.Src[0]
	}
	return int(-1 - src)
}

// Masks finds by which mask each node of attention reads keys and values: the leaf of the mask, or NoMask. Where
// attention is not a single node, its products with keys and with values are those around a softmax.
func (g *Graph) Masks() map[int32]int {
	found := map[int32]int{}
	for i := range g.Nodes {
		n, at := &g.Nodes[i], int32(i)
		switch n.Op {
		case "FLASH_ATTN_EXT":
			found[at] = g.originOf(n, 3)
		case "SOFT_MAX":
			if product, ok := g.producer(n, 0, "MUL_MAT"); ok {
				found[product] = g.originOf(n, 1)
			}
		case "MUL_MAT":
			if softmax, ok := g.producer(n, 1, "SOFT_MAX"); ok {
				found[at] = g.originOf(&g.Nodes[softmax], 1)
			}
		}
	}
	return found
}

// originOf is the leaf that a source of a node shows, or -1, which is NoMask.
func (g *Graph) originOf(n *Node, src int) int {
	at, ok := n.SrcAt(src)
	if !ok {
		return NoMask
	}
	return g.Origin(at)
}

// producer goes back from a source of a node, from first source to first source, to a node with an op; a few steps at
// most, and not past another product.
func (g *Graph) producer(n *Node, src int, op string) (at int32, ok bool) {
	at, ok = n.SrcAt(src)
	for range 10 {
		if !ok || at < 0 {
			return 0, false
		}
		next := &g.Nodes[at]
		if next.Op == op {
			return at, true
		}
		if next.Op == "MUL_MAT" {
			return 0, false
		}
		at, ok = next.SrcAt(0)
	}
	return 0, false
}
