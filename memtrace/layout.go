package memtrace

import (
	"iter"
	"slices"
	"sort"
)

// Layout is where the tensors of one graph lie while it is computed. Their memory is used again within the graph,
// so that a byte belongs to several of them, one after the other.
type Layout struct {
	placed []placed
	pieces map[uint64][]piece // by buffer, then by offset; nil: not made yet
}

// placed is one tensor of a graph.
type placed struct {
	region *Region
	buffer uint64
	offset uint64
	bytes  uint64
	node   int // that computes it; -1: an input
}

// piece is bytes of a buffer that have the same tensors in common, in the order in which they are computed.
type piece struct {
	offset, end uint64
	tensors     []int
}

// Add records that a tensor is computed by a node, -1 for an input of the graph. Nodes come in order, inputs before
// them.
func (l *Layout) Add(r *Region, buffer, offset, bytes uint64, node int) {
	if bytes == 0 {
		return
	}
	l.placed = append(l.placed, placed{r, buffer, offset, bytes, node})
	l.pieces = nil
}

// At is the tensor that lies at an offset of a buffer when a node has been computed: the newest of those that were
// put there.
func (l *Layout) At(buffer, offset uint64, node int) Hit {
	p := l.piece(buffer, offset)
	if p == nil {
		return Hit{}
	}
	k := sort.Search(len(p.tensors), func(k int) bool { return l.placed[p.tensors[k]].node > node })
	if k == 0 {
		return Hit{}
	}
	return l.hit(p.tensors[k-1], offset)
}

// onlyTensorAt returns the tensor that lies at an offset of a buffer, if there is but one.
func (l *Layout) onlyTensorAt(buffer, offset uint64) Hit {
	p := l.piece(buffer, offset)
	if p == nil || len(p.tensors) != 1 {
		return Hit{}
	}
	return l.hit(p.tensors[0], offset)
}

func (l *Layout) hit(i int, offset uint64) Hit {
	return Hit{l.placed[i].region.Root(), offset - l.placed[i].offset}
}

func (l *Layout) piece(buffer, offset uint64) *piece {
	if l.pieces == nil {
		l.index()
	}
	pieces := l.pieces[buffer]
	i := sort.Search(len(pieces), func(i int) bool { return pieces[i].end > offset })
	if i == len(pieces) || pieces[i].offset > offset {
		return nil
	}
	return &pieces[i]
}

// index cuts every buffer where a tensor begins or ends.
func (l *Layout) index() {
	l.pieces = map[uint64][]piece{}
	cuts := map[uint64][]uint64{}
	for _, t := range l.placed {
		cuts[t.buffer] = append(cuts[t.buffer], t.offset, t.offset+t.bytes)
	}
	for buffer, at := range cuts {
		slices.Sort(at)
		at = slices.Compact(at)
		pieces := make([]piece, len(at)-1)
		for i := range pieces {
			pieces[i].offset, pieces[i].end = at[i], at[i+1]
		}
		l.pieces[buffer] = pieces
	}
	for i, t := range l.placed {
		pieces := l.pieces[t.buffer]
		k := sort.Search(len(pieces), func(k int) bool { return pieces[k].end > t.offset })
		for ; k < len(pieces) && pieces[k].offset < t.offset+t.bytes; k++ {
			pieces[k].tensors = append(pieces[k].tensors, i)
		}
	}
	for buffer, pieces := range l.pieces {
		l.pieces[buffer] = slices.DeleteFunc(pieces, func(p piece) bool { return len(p.tensors) == 0 })
	}
}

// activationKey is what makes activations of several graphs one region.
type activationKey struct {
	ctx        int
	name, op   string
	occurrence int
}

// Activation is the region of a tensor that graphs of a context compute, or take in: one for all graphs, wherever
// it lies in each. It records that the tensor is here now.
func (m *RegionMap) Activation(ctx int, op string, occurrence int, t Tensor) *Region {
	key := activationKey{ctx, t.Name, op, occurrence}
	r := m.moving[key]
	if r == nil {
		r = m.fresh(Region{Type: Activation, Tensor: t.Name, Name: t.Name, Ctx: ctx, Op: op, To: Forever})
		m.moving[key] = r
		if b := m.buffers[t.Buffer]; b != nil {
			r.From = b.From
		}
	} else if r.Buffer != t.Buffer || r.Offset != t.Offset {
		r.Moves++
	}
	r.Layer, r.DType, r.Shape, r.Buffer, r.Offset, r.Bytes = t.Layer, t.DType, t.Shape, t.Buffer, t.Offset, t.Bytes
	return r
}

// Layouts are where the tensors of graphs lie, and when graphs were computed. The zero value is empty.
type Layouts struct {
	graphs   map[uint64]*Layout
	computed []computed // ends, oldest first, at most maxComputed
}

// computed is one execution of a graph.
type computed struct {
	begin, end int64
	layout     *Layout
}

// maxComputed is how many executions are known when an address is looked up. Those who look up walk through time,
// as the graphs do.
const maxComputed = 1 << 12

// Set keeps where the tensors of a graph lie; nil forgets it.
func (s *Layouts) Set(graph uint64, l *Layout) {
	if l == nil {
		delete(s.graphs, graph)
		return
	}
	if s.graphs == nil {
		s.graphs = map[uint64]*Layout{}
	}
	s.graphs[graph] = l
}

// Of is where the tensors of a graph lie; nil: it is not known.
func (s *Layouts) Of(graph uint64) *Layout { return s.graphs[graph] }

// Computed notes that a graph was computed from one time to another. Executions come in the order of their ends.
func (s *Layouts) Computed(graph uint64, begin, end int64) {
	l := s.graphs[graph]
	if l == nil {
		return
	}
	if len(s.computed) == maxComputed {
		s.computed = append(s.computed[:0], s.computed[maxComputed/2:]...)
	}
	s.computed = append(s.computed, computed{begin, end, l})
}

// threads is how many graphs are looked for that were computed at one time.
const threads = 8

// at are the layouts of the graphs that were computed at a time, as far as they are known.
func (s *Layouts) at(ns int64) iter.Seq[*Layout] {
	return func(yield func(*Layout) bool) {
		i := sort.Search(len(s.computed), func(i int) bool { return s.computed[i].end > ns })
		for _, c := range s.computed[i:min(i+threads, len(s.computed))] {
			if c.begin <= ns && !yield(c.layout) {
				return
			}
		}
	}
}
