package oplog

import (
	"encoding/binary"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// work is what nodes do.
type work struct {
	nodes         int // that are computed
	moves         int // of them, those that compute nothing with values
	flops         int64
	noFLOPs       int // nodes whose formula is not known
	read, written int64
	noBytes       int // nodes whose bytes are not known

	// Of an execution alone:
	attention int   // nodes of flash attention whose mask was reported
	masked    int64 // of flops, those of cells that masks rule out
	noMask    int   // nodes of flash attention whose mask was not reported
}

func (w work) minus(before work) work {
	return work{
		w.nodes - before.nodes, w.moves - before.moves, w.flops - before.flops, w.noFLOPs - before.noFLOPs,
		w.read - before.read, w.written - before.written, w.noBytes - before.noBytes,
		w.attention - before.attention, w.masked - before.masked, w.noMask - before.noMask,
	}
}

// known reports whether the FLOPs of all nodes are known; then intensities follow.
func (w work) known() bool { return w.noFLOPs == 0 }

// usefulKnown reports whether it is known of all FLOPs which are of cells that no token may read: rates are of the
// others.
func (w work) usefulKnown() bool { return w.known() && w.noMask == 0 }

func (w work) bytesKnown() bool { return w.noBytes == 0 && w.read+w.written > 0 }

// describe adds node_count, flops … What is not known is left out, and how often it was not is written. LRI's
// figure is left to its own formula where that is asked for. own is the FLOPs of nodes that have events of their own.
func (w work) describe(l *rundir.Line, own int64, legacy bool) {
	l.Int("node_count", int64(w.nodes))
	w.amounts(l)
	if w.known() && !legacy {
		l.Float("compute_intensity_gflops", float64(w.flops-own)/1e9)
	}
	if w.known() && w.bytesKnown() {
		l.Float("arithmetic_intensity", float64(w.flops)/float64(w.read+w.written))
	}
}

// amounts adds flops and bytes.
func (w work) amounts(l *rundir.Line) {
	if w.noFLOPs < w.nodes {
		l.Int("flops", w.flops)
	}
	if w.noFLOPs > 0 {
		l.Int("ops_without_flops", int64(w.noFLOPs))
	}
	if w.noBytes == 0 {
		l.Int("bytes_read", w.read)
		l.Int("bytes_written", w.written)
	} else {
		l.Int("ops_without_bytes", int64(w.noBytes))
	}
}

// unmasked adds what masks say of the work, and how much of it they leave open.
func (w work) unmasked(to *writer) {
	switch {
	case w.noMask > 0:
		to.Int("ops_without_mask", int64(w.noMask))
		to.mark(resource.Computed, "ops_without_mask")
	case w.attention > 0 && w.known():
		to.Int("flops_unmasked", w.flops-w.masked)
		to.mark(resource.Computed, "flops_unmasked")
	}
}

// Hot path: per mask one pass over its ranges, and none over its values; no allocation in steady state.

// workload is the work of an execution: what its graph does, as its masks and chosen experts have it.
type workload struct {
	of    *plan
	masks []maskPairs
	found []expertBytes
	used  map[int32]bool // experts; used again
}

// maskPairs is how many pairs of a token and a cell that it may read a mask has.
type maskPairs struct {
	leaf  int
	pairs int64
}

// expertBytes are the bytes of a node that became known by the experts that were chosen.
type expertBytes struct {
	node          int
	read, written int64
}

// begin counts what an execution's masks let tokens read, and the bytes of the experts that were chosen.
func (l *workload) begin(x *execution) {
	l.of, l.masks, l.found = x.plan, l.masks[:0], l.found[:0]
	for i := range x.Inputs {
		in := &x.Inputs[i]
		if in.Kind != ggmlhooks.InputMask || len(l.of.attention) == 0 {
			continue
		}
		at := l.mask(in.Leaf)
		if at < 0 {
			at = len(l.masks)
			l.masks = append(l.masks, maskPairs{leaf: in.Leaf})
		}
		for _, c := range in.Ranges {
			l.masks[at].pairs += int64(c.End - c.First)
		}
	}
	for i := range l.of.experts {
		e := &l.of.experts[i]
		ids := x.routed(e.ids)
		if ids == nil {
			continue
		}
		if l.used == nil {
			l.used = map[int32]bool{}
		}
		clear(l.used)
		for ; len(ids) >= 4; ids = ids[4:] {
			l.used[int32(binary.LittleEndian.Uint32(ids))] = true
		}
		o := e.op
		o.Experts = int64(len(l.used))
		if read, written, ok := o.Bytes(); ok {
			l.found = append(l.found, expertBytes{e.node, read, written})
		}
	}
}

// mask is the index of the mask that is a leaf, -1 where none was reported.
func (l *workload) mask(leaf int) int {
	return slices.IndexFunc(l.masks, func(m maskPairs) bool { return m.leaf == leaf })
}

// work is what nodes from first to last did.
func (l *workload) work(first, last int) work {
	w := l.of.sums[last+1].minus(l.of.sums[first])
	for _, e := range l.found {
		if e.node >= first && e.node <= last {
			w.noBytes--
			w.read += e.read
			w.written += e.written
		}
	}
	for i := range l.of.attention {
		a := &l.of.attention[i]
		if a.node < first || a.node > last {
			continue
		}
		at := l.mask(a.mask)
		if at < 0 {
			w.noMask++
		} else if own, ok := a.op.Unmasked(l.masks[at].pairs); ok {
			w.attention++
			w.masked += a.full - own
		} else {
			w.noMask++
		}
	}
	return w
}
