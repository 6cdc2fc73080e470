package track

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// tracked is one cache of a context.
type tracked struct {
	*kvcache.Cache
	attention *kvcache.Attention // one of the two is nil
	states    *kvcache.States
	program   interface { // what a program does to sequences, as the cache's kind has it
		Remove(seq, first, end int32, ns int64)
		Copy(from, to, first, end int32, ns int64)
	}
	parts    map[partName]int // numbers of Parts
	buffers  map[uint64]bool  // that its tensors lie in
	windowed bool             // tokens do not see all cells of their sequence
}

type partName struct {
	layer  int32
	tensor kvcache.Tensor
}

// work is what a graph does to one cache.
type work struct {
	*tracked
	uses   []*use // by part; nil where the graph does not touch it
	index  int    // leaf that reports which cells are written
	others []int  // further such leafs, which should say the same
	groups []groupWork
}

// groupWork is what it does to the parts of a group, all of which it treats alike.
type groupWork struct {
	writes  int64
	masks   []maskReads
	shifted bool
	reads   int64 // without mask
}

type maskReads struct {
	leaf  int
	times int64
}

// works finds the caches that a graph works on, and makes those that are new.
func (x *context) works(r *Recorder, p *plan) []*work {
	var works []*work
	byCache := map[*tracked]*work{}
	for _, leaf := range p.order {
		t := x.cacheOf(r, p, leaf)
		if t == nil {
			continue
		}
		w := byCache[t]
		if w == nil {
			w = &work{tracked: t, index: -1}
			byCache[t] = w
			works = append(works, w)
		}
		w.add(p, leaf)
	}
	for _, w := range works {
		w.regroup()
	}
	return works
}

// cacheOf is the cache that a tensor is a part of. A new one is made for a tensor that is written; one that is only
// read may be another context's.
func (x *context) cacheOf(r *Recorder, p *plan, leaf int) *tracked {
	u, l := p.touched[leaf], &p.Leafs[leaf]
	name := partName{u.layer, u.tensor}
	for _, t := range x.caches {
		if _, ok := t.parts[name]; ok {
			return t
		}
	}
	if u.writes == 0 {
		return nil
	}
	kind := x.kind(p, leaf)
	t := x.cache(kind)
	if t == nil {
		shape := kvcache.Shape{Kind: kind, Size: int(l.NE[1]), Streams: int(l.NE[2]), Block: r.o.Block}
		t = &tracked{parts: map[partName]int{}, buffers: map[uint64]bool{}, windowed: kind == kvcache.SWA}
		if kind == kvcache.Recurrent {
			t.states = kvcache.NewStates(shape)
			t.Cache, t.program = &t.states.Cache, t.states
		} else {
			t.attention = kvcache.NewAttention(shape)
			t.Cache, t.program = &t.attention.Cache, t.attention
		}
		t.Ended = func(life *kvcache.Life) { r.ended(x, t, life) }
		x.caches = append(x.caches, t)
		x.memory.Caches = append(x.memory.Caches, t.Cache)
		if x.unseen { // a state was loaded before anything was computed
			t.Restore(-1, x.lastNS)
		}
	}
	if t.Size != int(l.NE[1]) {
		return nil // no cache that this package knows
	}
	t.parts[name] = len(t.Parts)
	t.Parts = append(t.Parts, kvcache.Part{Layer: u.layer, Tensor: u.tensor, CellBytes: int64(l.NB[1])})
	t.buffers[l.Place.Buffer] = true
	return t
}

func (x *context) cache(kind kvcache.Kind) *tracked {
	for _, t := range x.caches {
		if t.Kind == kind {
			return t
		}
	}
	return nil
}

// kind is which cache a tensor belongs to. Where keys are written by two indices there are two caches of
// attention, and that of the sliding window is the smaller one, or if they are of one size the one that llama.cpp
// made second.
func (x *context) kind(p *plan, leaf int) kvcache.Kind {
	u := p.touched[leaf]
	if u.tensor == kvcache.R || u.tensor == kvcache.S {
		return kvcache.Recurrent
	}
	own := p.keys(u.layer)
	for _, other := range p.order {
		o := p.touched[other]
		if o.tensor != kvcache.K || o.writes == 0 || own < 0 || o.index == p.touched[own].index {
			continue
		}
		a, b := &p.Leafs[own], &p.Leafs[other]
		if a.NE[1] < b.NE[1] || a.NE[1] == b.NE[1] && a.Place.Buffer > b.Place.Buffer {
			return kvcache.SWA
		}
	}
	return kvcache.Base
}

// keys is the leaf of a layer's keys, or -1.
func (p *plan) keys(layer int32) int {
	for _, leaf := range p.order {
		if u := p.touched[leaf]; u.layer == layer && u.tensor == kvcache.K {
			return leaf
		}
	}
	return -1
}

// add notes what the graph does to one more part.
func (w *work) add(p *plan, leaf int) {
	u := p.touched[leaf]
	part := w.parts[partName{u.layer, u.tensor}]
	for len(w.uses) <= part {
		w.uses = append(w.uses, nil)
	}
	w.uses[part] = u
	switch {
	case u.writes == 0 || u.index < 0 || u.index == w.index:
	case w.index < 0:
		w.index = u.index
	case !slices.Contains(w.others, u.index):
		w.others = append(w.others, u.index)
	}
}

// regroup sorts the cache's parts by what this graph does to them, and works out what it does to each group.
func (w *work) regroup() {
	keys := make([]string, len(w.Parts))
	for part, u := range w.uses {
		if u != nil {
			keys[part] = u.key()
		}
	}
	w.Refine(keys)
	w.groups = w.groups[:0]
	for _, group := range w.Groups() {
		w.groups = append(w.groups, w.group(group[0]))
	}
}

func (w *work) group(part int) (g groupWork) {
	if part >= len(w.uses) || w.uses[part] == nil {
		return g
	}
	u := w.uses[part]
	g.writes, g.shifted = int64(u.writes), u.shifted
	for _, mask := range u.reads {
		at := slices.IndexFunc(g.masks, func(m maskReads) bool { return m.leaf == mask })
		switch {
		case mask == ggmlhooks.NoMask:
			g.reads++
		case at < 0:
			g.masks = append(g.masks, maskReads{mask, 1})
		default:
			g.masks[at].times++
		}
	}
	return g
}

// times says how often the graph writes each part of a cell that it writes; shift: it has no tokens.
func (w *work) times(shift bool) []int64 {
	times := make([]int64, len(w.Parts))
	for g, group := range w.Groups() {
		n := w.groups[g].writes
		if shift {
			n = 0
			if w.groups[g].shifted {
				n = 1
			}
		}
		for _, part := range group {
			times[part] = n
		}
	}
	return times
}

// moment says when this execution wrote and read each part.
func (w *work) moment(x *execution) *kvcache.Moment {
	m := &kvcache.Moment{NS: x.BeganNS()}
	if len(x.Times.Nodes) == 0 {
		return m
	}
	span := x.Times.Nodes[len(x.Times.Nodes)-1].LeftNS
	for span>>m.Shift >= 1<<32 {
		m.Shift++
	}
	m.Writes, m.Reads = make([]uint32, len(w.Parts)), make([]uint32, len(w.Parts))
	for part, u := range w.uses {
		if u != nil {
			m.Writes[part] = uint32(x.intervalOf(u.writeAt) >> m.Shift)
			m.Reads[part] = uint32(x.intervalOf(u.readAt) >> m.Shift)
		}
	}
	return m
}

// intervalOf is when the measured interval began in which a node was computed, behind the graph's beginning.
func (x *execution) intervalOf(node int32) int64 {
	at, exact := slices.BinarySearchFunc(x.Times.Nodes, node, func(t ggmlhooks.NodeTime, n int32) int { return int(t.Node) - int(n) })
	_ = exact // the interval of a timed node begins with the one before, too
	if at == 0 || node < 0 {
		return 0
	}
	return max(x.Times.Nodes[at-1].LeftNS, 0)
}
