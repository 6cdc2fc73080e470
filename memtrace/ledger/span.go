package ledger

import (
	"cmp"
	"slices"
)

// span is bytes of a buffer: runs of the same length, one stride apart.
type span struct {
	offset    uint64 // of the first run
	run       uint64 // bytes
	pieces    int64  // runs
	stride    uint64 // bytes from one run to the next; 0 where there is one, or where they are scattered
	scattered bool   // the runs lie somewhere from the offset on
}

func (s *span) size() uint64 { return s.run * uint64(s.pieces) }

// extent is a tensor, or a part of one, as it lies in a buffer.
type extent struct {
	offset uint64
	block  uint64   // bytes of a block of its type, 0 = not known
	ne     [4]int64 // in blocks, then rows and planes
	nb     [4]uint64
}

// bytes returns how many there are, each element for itself.
func (e *extent) bytes() uint64 { return e.block * uint64(e.ne[0]*e.ne[1]*e.ne[2]*e.ne[3]) }

// part is the elements from first to end-1 of a dimension.
func (e extent) part(dim int, first, end int64) extent {
	e.offset += uint64(first) * e.nb[dim]
	e.ne[dim] = end - first
	return e
}

// maxSpans is how many spans an operand becomes at most; what would be more is one that is scattered.
const maxSpans = 256

// level is a dimension in which runs are repeated.
type level struct {
	count  int64
	stride uint64
}

// spans appends the bytes of an extent, each once, as few spans as they are. Dimensions that lie in each other
// become one run.
func (e *extent) spans(dst []span) []span {
	run, levels, n := e.levels()
	if n == 0 {
		return append(dst, span{offset: e.offset, run: run, pieces: 1})
	}
	most := 0
	for i, l := range levels[:n] {
		if l.count > levels[most].count {
			most = i
		}
	}
	inner, times, all := levels[most], int64(1), levels[most].count
	outer := slices.Delete(levels[:n], most, most+1)
	for _, l := range outer {
		times, all = min(times, maxSpans+1)*min(l.count, maxSpans+1), all*l.count
	}
	if times > maxSpans {
		return append(dst, span{offset: e.offset, run: run, pieces: all, scattered: true})
	}
	return repeat(dst, span{offset: e.offset, run: run, pieces: inner.count, stride: inner.stride}, outer)
}

// repeat appends a span at every place of the levels, from the first level, which is the innermost, outwards.
func repeat(dst []span, s span, outer []level) []span {
	if len(outer) == 0 {
		return append(dst, s)
	}
	last := outer[len(outer)-1]
	for i := range last.count {
		at := s
		at.offset += uint64(i) * last.stride
		dst = repeat(dst, at, outer[:len(outer)-1])
	}
	return dst
}

// levels is how long the runs of an extent are, and how they are repeated, by stride. A dimension whose elements
// touch or overlap makes the run longer.
func (e *extent) levels() (run uint64, levels [4]level, n int) {
	var dims [4]level
	k := 0
	for d, count := range e.ne {
		if count > 1 {
			dims[k] = level{count, e.nb[d]}
			k++
		}
	}
	slices.SortFunc(dims[:k], func(a, b level) int { return cmp.Compare(a.stride, b.stride) })
	run = e.block
	for _, d := range dims[:k] {
		switch {
		case n == 0 && d.stride <= run:
			run += d.stride * uint64(d.count-1)
		case n > 0 && d.stride == levels[n-1].stride*uint64(levels[n-1].count):
			levels[n-1].count *= d.count
		default:
			levels[n] = d
			n++
		}
	}
	return run, levels, n
}
