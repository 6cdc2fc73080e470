package memtrace

import "math/bits"

// space is memory in which bytes are followed: that of a region, or a buffer that regions share.
type space struct {
	touched runs[touched]
	written runs[written]
	shared  bool
	evicted bool   // of some bytes the life has ended, though they were touched
	grain   uint64 // to which ranges are widened, a power of two; 0: they are not
	limit   int    // number of runs from which on they are widened further
	// A region that is accessed in columns, such as values of a cache that lie one dimension after the other, is
	// folded: its rows of stride bytes lie over each other, rows of them in a group. A byte of the space stands for
	// rows bytes then.
	base, bytes  uint64
	rows, stride uint64
	unfit        bool // it was found that it cannot be folded
}

// touched is when bytes were touched last.
type touched struct {
	ns   int64
	slot int32
	read bool // and not written
}

// written is when bytes were written last, and whose they are.
type written struct {
	ns    int64
	owner int32 // number of the region in the meter
	times uint8 // at most 2
	known bool  // the last write was seen
}

// maxRuns is how many different ranges of a space are distinguished, before they are widened.
const maxRuns = 1 << 17

// isNew reports whether nothing of a range was touched.
func (s *space) isNew(start, end uint64) bool {
	c, i := s.touched.search(start)
	return c == len(s.touched.chunks) || s.touched.chunks[c][i].start >= end
}

// weight is how many bytes one of the space stands for.
func (s *space) weight() int64 { return int64(max(s.rows, 1)) }

// widen makes ranges coarser if there are too many.
func (s *space) widen() {
	n := max(s.touched.n, s.written.n)
	if n <= max(s.limit, maxRuns) {
		return
	}
	s.limit = 2 * n
	size := s.bytes
	if size == 0 {
		start, end := s.touched.span()
		size = end - start
	}
	s.grain = max(2*s.grain, 1<<bits.Len64(size/maxRuns))
}

// snap widens a range to the space's grain.
func (s *space) snap(start, end uint64) (uint64, uint64) {
	if s.grain <= 1 {
		return start, end
	}
	return start &^ (s.grain - 1), (end + s.grain - 1) &^ (s.grain - 1)
}

// stretches calls f with the ranges of the space that an access covers. It is false if they hold bytes that the
// access does not.
func (s *space) stretches(a *Touch, f func(start, end uint64)) (exact bool) {
	pieces := uint64(max(a.Pieces, 1))
	each := a.Size / pieces
	if pieces > 1 && each == a.Stride {
		pieces, each = 1, a.Size
	}
	if pieces > 1 && s.rows == 0 && !s.shared && !s.unfit {
		s.fold(a.Offset, pieces, each, a.Stride)
	}
	switch {
	case s.rows > 0:
		start, end, exact := s.folded(a.Offset, pieces, each, a.Stride)
		f(start, end)
		return exact
	case pieces == 1:
		f(a.Offset, a.Offset+each)
		return true
	case pieces <= maxPieces:
		for i := range pieces {
			f(a.Offset+i*a.Stride, a.Offset+i*a.Stride+each)
		}
		return true
	}
	f(a.Offset, a.Offset+(pieces-1)*a.Stride+each)
	return false
}

// maxPieces is how many pieces of an access are followed one by one.
const maxPieces = 64

// fold folds the space if it consists of groups of such columns, and was accessed in whole groups until now.
func (s *space) fold(offset, pieces, each, stride uint64) {
	group := pieces * stride
	s.unfit = true // unless it turns out to fit
	if s.bytes == 0 || stride == 0 || s.grain > 1 || group/stride != pieces || s.bytes%group != 0 || offset < s.base ||
		(offset-s.base)%group+each > stride {
		return
	}
	if s.touched.isAligned(s.base, group) && s.written.isAligned(s.base, group) {
		s.touched.shrink(s.base, pieces)
		s.written.shrink(s.base, pieces)
		s.rows, s.stride, s.unfit = pieces, stride, false
	}
}

// folded is where an access lies in a folded space. One that is not of whole columns is taken for them.
func (s *space) folded(offset, pieces, each, stride uint64) (start, end uint64, exact bool) {
	group := s.rows * s.stride
	at := offset - min(s.base, offset)
	first := at / group * s.stride
	within := at % group
	if pieces == s.rows && stride == s.stride && within+each <= s.stride {
		return first + within, first + within + each, true
	}
	length := (pieces-1)*stride + each
	if within == 0 && length%group == 0 {
		return first, first + length/group*s.stride, true
	}
	if column := within % s.stride; column+length <= s.stride { // of one row
		return first + column, first + column + length, false
	}
	return first, (at + length + group - 1) / group * s.stride, false
}
