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

// partialState is llama.h's flag of a state that holds only what cannot be cut back otherwise: recurrent states,
// windows.
const partialState = 1

// change takes in what the program did to sequences.
func (t *tracked) change(c *ggmlhooks.SeqChange) {
	switch c.Kind {
	case ggmlhooks.SeqRemove:
		t.program.Remove(c.Seq, c.First, c.End, c.MonoNS)
	case ggmlhooks.SeqCopy:
		t.program.Copy(c.Seq, c.To, c.First, c.End, c.MonoNS)
	case ggmlhooks.SeqKeep:
		t.Keep(c.Seq, c.MonoNS)
	case ggmlhooks.SeqAdd:
		if c.Value != 0 {
			t.Move(c.Seq, c.First, c.End, func(pos int32) int32 { return pos + c.Value }, c.MonoNS)
		}
	case ggmlhooks.SeqDivide:
		if c.Value > 1 {
			t.Move(c.Seq, c.First, c.End, func(pos int32) int32 { return pos / c.Value }, c.MonoNS)
		}
	case ggmlhooks.SeqRestore:
		if c.Value&partialState == 0 || t.Kind != kvcache.Base {
			t.Restore(c.Seq, c.MonoNS)
		}
	}
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
