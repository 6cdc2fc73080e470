package oplog

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: per mask one pass over its ranges, and none over its values.

// noLeaf stands for a mask that is no input.
const noLeaf = -1

// attentionNode is an op of flash attention that has a mask.
type attentionNode struct {
	node, mask int // mask is a leaf, or noLeaf
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
			break
		}
		src = n.Src[0]
	}
	mask := noLeaf // it is computed: nothing reports it
	if src < 0 {
		mask = int(-1 - src)
	}
	if full, ok := o.FLOPs(); ok {
		p.attention = append(p.attention, attentionNode{i, mask, *o, full})
	}
}

// mask counts what a mask lets tokens read.
func (x *execution) mask(in *ggmlhooks.Input) {
	if in.Kind != ggmlhooks.InputMask || len(x.plan.attention) == 0 {
		return
	}
	at := slices.IndexFunc(x.masks, func(m maskPairs) bool { return m.leaf == in.Leaf })
	if at < 0 {
		at = len(x.masks)
		x.masks = append(x.masks, maskPairs{leaf: in.Leaf})
	}
	for _, c := range in.Ranges {
		x.masks[at].pairs += int64(c.End - c.First)
	}
}

// unmask adds to w, the work of nodes first to last, what masks say of it.
func (x *execution) unmask(w *work, first, last int) {
	for i := range x.plan.attention {
		a := &x.plan.attention[i]
		if a.node < first || a.node > last {
			continue
		}
		at := slices.IndexFunc(x.masks, func(m maskPairs) bool { return m.leaf == a.mask })
		if at < 0 {
			w.noMask++
			continue
		}
		if own, ok := a.op.Unmasked(x.masks[at].pairs); ok {
			w.attention++
			w.masked += a.full - own
		} else {
			w.noMask++
		}
	}
}

// maskFields adds what masks say of the work, and how much of it they leave open.
func (r *Recorder) maskFields(w work) {
	switch {
	case w.noMask > 0:
		r.line.Int("ops_without_mask", int64(w.noMask))
		r.mark(resource.Computed, "ops_without_mask")
	case w.attention > 0 && w.known():
		r.line.Int("flops_unmasked", w.flops-w.masked)
		r.mark(resource.Computed, "flops_unmasked")
	}
}
