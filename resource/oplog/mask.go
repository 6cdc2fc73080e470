package oplog

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: per mask one pass over its ranges, and none over its values.

// attentionNode is an op of flash attention whose mask is an input.
type attentionNode struct {
	node, mask int // mask is a leaf
	op         resource.Op
	full       int64 // its FLOPs with every cell
}

// maskPairs is how many pairs of a token and a cell that it may read a mask has.
type maskPairs struct {
	leaf  int
	pairs int64
}

// attend notes that a node is one of flash attention.
func (p *plan) attend(i int, o *resource.Op) {
	src, ok := p.graph.Nodes[i].SrcAt(3)
	if !ok || o.Name != "FLASH_ATTN_EXT" {
		return
	}
	for src >= 0 { // what is converted for it
		n := &p.graph.Nodes[src]
		if len(n.Src) == 0 || !n.View && n.Op != "CPY" && n.Op != "CONT" && n.Op != "DUP" {
			return
		}
		src = n.Src[0]
	}
	if full, ok := o.FLOPs(); ok {
		p.attention = append(p.attention, attentionNode{i, int(-1 - src), *o, full})
	}
}

// Input counts what a mask lets tokens read.
func (r *Recorder) Input(in *ggmlhooks.Input) error {
	x := r.open[in.Exec]
	if x == nil || in.Kind != ggmlhooks.InputMask || len(x.plan.attention) == 0 {
		return nil
	}
	at := slices.IndexFunc(x.masks, func(m maskPairs) bool { return m.leaf == in.Leaf })
	if at < 0 {
		at = len(x.masks)
		x.masks = append(x.masks, maskPairs{leaf: in.Leaf})
	}
	for _, c := range in.Ranges {
		x.masks[at].pairs += int64(c.End - c.First)
	}
	return nil
}

// unmasked is the FLOPs of nodes first to last, of which w says what they do with every cell, without those of cells that are masked. It
// is false where there are none, or where a mask was not told.
func (x *execution) unmasked(first, last int, w work) (flops int64, ok bool) {
	if !w.known() {
		return 0, false
	}
	flops = w.flops
	for i := range x.plan.attention {
		a := &x.plan.attention[i]
		if a.node < first || a.node > last {
			continue
		}
		at := slices.IndexFunc(x.masks, func(m maskPairs) bool { return m.leaf == a.mask })
		if at < 0 {
			return 0, false
		}
		own, known := a.op.Unmasked(x.masks[at].pairs)
		if !known {
			return 0, false
		}
		flops, ok = flops-a.full+own, true
	}
	return flops, ok
}

// unmaskedField adds it.
func (r *Recorder) unmaskedField(x *execution, first, last int, w work) {
	if flops, ok := x.unmasked(first, last, w); ok {
		r.line.Int("flops_unmasked", flops)
		r.mark(resource.Computed, "flops_unmasked")
	}
}
