package track

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// cacheContext is what is known of a llama_context.
type cacheContext struct {
	number   uint32
	block    int // cells of a block
	out      *journal
	caches   []*tracked
	made     int // changes when what graphs work on must be found anew
	requests requests
	unseen   bool // a state was loaded while there were no caches

	undecided       bool   // an execution may turn out to be set-up
	begun, recorded uint64 // newest executions
	waiting         []waiting
}

// waiting is what happened while executions before it were not recorded yet.
type waiting struct {
	after  uint64               // execution
	change *ggmlhooks.SeqChange // or nil:
	freed  ggmlhooks.BufferEnd
}

// add takes in what happened, after the executions before it.
func (x *cacheContext) add(w waiting) {
	w.after = x.begun
	x.waiting = append(x.waiting, w)
	if x.begun == x.recorded {
		x.catchUp(x.recorded, false)
	}
}

// catchUp takes in what waits for executions up to a number. What was done to sequences while executions that are
// discarded were undecided was set-up, too.
func (x *cacheContext) catchUp(exec uint64, discarded bool) {
	n := 0
	for ; n < len(x.waiting) && x.waiting[n].after <= exec; n++ {
		switch w := &x.waiting[n]; {
		case w.change == nil:
			x.free(w.freed)
		case !discarded:
			for _, t := range x.caches {
				t.change(w.change)
				x.out.report(x, t, w.change.MonoNS, 0, nil)
			}
			x.requests.change(w.change)
		}
	}
	x.waiting = slices.Delete(x.waiting, 0, n)
}

// free ends the lives in a cache whose memory was freed: watching them ends, so they are censored.
func (x *cacheContext) free(e ggmlhooks.BufferEnd) {
	for _, t := range slices.Clone(x.caches) {
		if t.buffers[e.ID] {
			g := t.Gauge(x.number)
			g.FreedUnixNS = e.MonoNS + x.out.unixOffset
			x.out.freed = append(x.out.freed, g)
			x.out.freed = x.out.freed[max(0, len(x.out.freed)-kvcache.MaxFreed):]
			t.End(e.MonoNS)
			x.caches = slices.DeleteFunc(x.caches, func(other *tracked) bool { return other == t })
			x.made++
		}
	}
}

// works finds the caches that a graph works on, and makes those that are new.
func (x *cacheContext) works(p *plan) []*work {
	var works []*work
	byCache := map[*tracked]*work{}
	for _, leaf := range p.order {
		t := x.cacheOf(p, leaf)
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
func (x *cacheContext) cacheOf(p *plan, leaf int) *tracked {
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
		shape := kvcache.Shape{Kind: kind, Size: int(l.NE[1]), Streams: int(l.NE[2]), Block: x.block}
		t = &tracked{parts: map[partName]int{}, buffers: map[uint64]bool{}, windowed: kind == kvcache.SWA}
		if kind == kvcache.Recurrent {
			t.states = kvcache.NewStates(shape)
			t.Cache, t.program = &t.states.Cache, t.states
		} else {
			t.attention = kvcache.NewAttention(shape)
			t.Cache, t.program = &t.attention.Cache, t.attention
		}
		t.Ended = func(life *kvcache.Life) { x.out.ended(x.number, t, life) }
		x.caches = append(x.caches, t)
		if x.unseen { // a state was loaded before anything was computed
			t.Restore(-1, 0)
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

func (x *cacheContext) cache(kind kvcache.Kind) *tracked {
	for _, t := range x.caches {
		if t.Kind == kind {
			return t
		}
	}
	return nil
}

// posRange is the lowest and the highest position of a sequence, -1 and -1 where it has none, as
// llama_memory_seq_pos_min and _max have them. Of two caches of attention it is that of the one with windows; with
// recurrent states it is what both have. It is not known where a state was loaded, until the sequence is removed.
func (x *cacheContext) posRange(seq int32) (low, high int32, known bool) {
	low, high, known = -1, -1, true
	attention, states := cmp.Or(x.cache(kvcache.SWA), x.cache(kvcache.Base)), x.cache(kvcache.Recurrent)
	if attention != nil {
		low, high, known = attention.Range(seq)
	}
	if states == nil {
		return low, high, known
	}
	l, h, k := states.Range(seq)
	if attention == nil {
		return l, h, k
	}
	return max(low, l), min(high, h), known && k
}

// kind is which cache a tensor belongs to. Where keys are written by two indices there are two caches of
// attention, and that of the sliding window is the smaller one, or if they are of one size the one that llama.cpp
// made second.
func (x *cacheContext) kind(p *plan, leaf int) kvcache.Kind {
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
