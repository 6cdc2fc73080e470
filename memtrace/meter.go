package memtrace

// Hot path: at most 80 ns per touch where ranges repeat, no allocation in steady state (BenchmarkMeter).

import (
	"cmp"
	"slices"
)

// Touch is an access to memory of which it is known where it goes.
type Touch struct {
	// NS is when it happened. Touches come in the order of time: one that comes late counts as of the newest, but
	// for a write of what was never touched, such as the load of a weight that is reported when it is used.
	NS     int64
	Offset uint64   // of the first byte
	Size   uint64   // bytes that are touched in all
	Buffer uint64   // that Offset counts in; 0: Offset is an address of the host
	Region int      // number of its region, negative: not known
	Op     AccessOp // an op that is not known counts as a read
	Type   RegionType
	// Scattered is true if the bytes lie somewhere from Offset on: it is not known where, and only their number counts.
	Scattered bool
	Ended     bool   // of OpFree: the run ended, not the need for what the memory held
	Pieces    int64  // of Size/Pieces bytes each; 0 is 1
	Stride    uint64 // from the beginning of a piece to that of the next
	// Count is how many accesses these are; 0 is 1. Where WindowNS is not 0 they happened within so long a time,
	// and Size is what they add up to: which bytes they touched is not known.
	Count    int64
	WindowNS int64
}

// Place gives a Meter what touches of a region do not show.
type Place struct {
	Offset  uint64 // of its first byte, as that of touches
	Bytes   uint64
	Written int64 // when it was written, where no touch shows it, such as the end of a weight's load; 0: not known
}

// Meter computes the metrics of mrm-trace from touches as they come, by region and by type of region. Every byte is
// followed: those that were always touched together are followed together, so that memory grows with the number of
// regions and of different ranges, never with that of touches. It is for one goroutine. But [Meter.Count] and
// [Meter.Follow], which [Meter.Add] calls one after the other, may be called by one each, if both are given the
// same touches in the same order. [Meter.EndCells] is for the one that calls Follow; all else waits until both have
// come to the end.
//
// The bytes of a region are its own, but for activations and compute buffers: they are followed by buffer, for many
// of them take turns in the same memory. A byte belongs to the region that wrote it last.
type Meter struct {
	counted counters
	_       [64]byte // what one goroutine writes, the other one has not beside what it reads
	clock   clock
	regions followed
	recent  reuse
	lives   lives
}

// maxSpan is how many bytes an access may touch, or lie apart: what is longer is damage, and counts with its
// bytes alone.
const maxSpan = 1 << 48

// NewMeter makes a meter that measures working sets of windows of these lengths, in nanoseconds.
func NewMeter(windows ...int64) *Meter {
	m := &Meter{}
	for _, ns := range windows {
		if ns > 0 {
			m.clock.windows = append(m.clock.windows, window{length: ns})
		}
	}
	m.regions = followed{buffers: map[uint64]*space{}, windows: len(m.clock.windows)}
	m.recent.clock = &m.clock
	m.lives = lives{clock: &m.clock, regions: &m.regions}
	return m
}

// Declare says where a region lies, before it is touched.
func (m *Meter) Declare(id int, kind RegionType, p Place) {
	m.regions.region(id, kind).place = p
	m.counted.region(id, kind)
}

// Add takes a touch in: it counts it, and follows its bytes.
func (m *Meter) Add(a *Touch) {
	m.Count(a)
	m.Follow(a)
}

// Count adds up what touches come to, and how far each lies from the one before in its region. Who does not call
// Add calls Follow too.
func (m *Meter) Count(a *Touch) {
	if a.Op != OpAlloc && a.Op != OpFree {
		m.counted.region(a.Region, a.Type).count(a)
	} else if a.renews() && a.Region >= 0 {
		m.counted.region(a.Region, a.Type)
	}
}

// Follow follows the bytes that are touched: when they were before, whose they are and for how long they are needed.
func (m *Meter) Follow(a *Touch) {
	c := &m.clock
	if a.NS > c.now || !c.begun {
		c.advance(a.NS)
	}
	c.at = c.now
	if a.Op == OpAlloc || a.Op == OpFree {
		m.renew(a)
		return
	}
	r := m.regions.region(a.Region, a.Type)
	s := m.regions.spaceOf(r, a.Buffer)
	isWrite := a.Op == OpWrite
	if r.place.Written != 0 {
		if !isWrite && !s.shared && r.place.Bytes != 0 {
			m.lives.load(s, r)
		}
		r.place.Written = 0
	}
	switch {
	case a.Size == 0 || a.Scattered || a.isDamaged():
	case a.WindowNS > 0:
		// Each access was of the whole region, or it is not known which bytes they touched.
		if whole := r.place.Bytes; r.isSelf && whole > 0 && a.Size == whole*uint64(max(a.Count, 1)) {
			m.touch(s, r, r.place.Offset, r.place.Offset+whole, isWrite)
		}
	case a.Pieces <= 1 && s.rows == 0:
		if a.NS < c.now && isWrite && s.isNew(a.Offset, a.Offset+a.Size) {
			c.at = a.NS
		}
		m.touch(s, r, a.Offset, a.Offset+a.Size, isWrite)
	default:
		if !s.stretches(a, func(start, end uint64) { m.touch(s, r, start, end, isWrite) }) {
			r.Hulls++
		}
	}
}

// touch follows a read or a write of a range of a space.
func (m *Meter) touch(s *space, r *region, start, end uint64, isWrite bool) {
	start, end = s.snap(start, end)
	if start >= end {
		return
	}
	if m.recent.isFull() {
		m.regions.renumber(m.recent.renumber())
	}
	fresh := m.recent.touch(s, r, start, end, !isWrite)
	switch {
	case isWrite:
		m.lives.write(s, r, start, end, m.recent.before)
	case fresh > 0 || s.shared || s.evicted:
		m.lives.read(s, r, start, end, m.recent.before)
	}
	if s.touched.n > maxRuns || s.written.n > maxRuns {
		s.widen()
		r.Grain = max(r.Grain, s.grain)
	}
}

// renews reports whether an allocation or a release ends what memory held.
func (a *Touch) renews() bool { return a.Size > 0 && a.WindowNS <= 0 && !a.isDamaged() }

// isDamaged reports whether an access is of more than there can be.
func (a *Touch) isDamaged() bool {
	return a.Size > maxSpan || a.Offset+a.Size < a.Offset || a.Pieces > 1 && a.isTorn()
}

// isTorn reports it of one of several pieces.
func (a *Touch) isTorn() bool {
	return a.Stride > maxSpan || a.Pieces > maxSpan || uint64(a.Pieces)*a.Stride > maxSpan ||
		a.Offset+uint64(a.Pieces)*a.Stride < a.Offset
}

// renew ends what a range held. Of the allocation of a region another life begins.
func (m *Meter) renew(a *Touch) {
	if !a.renews() {
		return
	}
	censored := a.Op == OpFree && a.Ended
	if a.Region < 0 {
		m.renewBuffer(a, censored)
		return
	}
	r := m.regions.region(a.Region, a.Type)
	s := m.regions.spaceOf(r, a.Buffer)
	isExact := s.stretches(a, func(start, end uint64) {
		start, end = s.snap(start, end)
		m.end(s, start, end, censored)
		if a.Op == OpAlloc && start < end {
			m.lives.claim(s, r, start, end, 0)
		}
	})
	if !isExact {
		r.Hulls++
	}
}

// renewBuffer ends what regions held that lie in a range of a buffer.
func (m *Meter) renewBuffer(a *Touch, censored bool) {
	if s := m.regions.buffers[a.Buffer]; s != nil {
		m.end(s, a.Offset, a.Offset+a.Size, censored)
	}
	for _, r := range m.regions.order {
		s := r.space
		if s == nil || s.shared || r.buffer != a.Buffer {
			continue
		}
		start, end := s.base, s.base+s.bytes
		if s.bytes == 0 {
			start, end = s.touched.span()
		}
		if start >= a.Offset && end <= a.Offset+a.Size {
			m.end(s, 0, Forever, censored)
		}
	}
}

// EndCells ends, at a time, what cells first to end-1 of a cache held, of bytes each in the region's tensor. Their
// memory stays what it is: that it was touched before still counts. It is false if they cannot be found in it.
func (m *Meter) EndCells(region int, first, end, bytes, ns int64) bool {
	regions := m.regions.dense
	if region < 0 || region >= len(regions) || regions[region] == nil || regions[region].space == nil {
		return region >= 0 // nothing was written there
	}
	if first < 0 || first >= end || bytes <= 0 || end > maxSpan/bytes {
		return false
	}
	s := regions[region].space
	from, to := s.base+uint64(first*bytes), s.base+uint64(end*bytes)
	if s.rows > 0 {
		width := uint64(bytes) / s.rows
		if width == 0 || uint64(bytes)%s.rows != 0 || s.stride%width != 0 {
			return false
		}
		perStream := s.stride / width
		stream := uint64(first) / perStream
		from = stream*s.stride + uint64(first)%perStream*width
		if to = from + uint64(end-first)*width; to > (stream+1)*s.stride {
			return false
		}
	} else if s.bytes > 0 && to > s.base+s.bytes {
		return false
	}
	m.clock.advance(ns)
	from, to = s.snap(from, to)
	m.recent.before = s.touched.get(from, to, m.recent.before[:0])
	m.lives.end(s, from, to, m.recent.before, false)
	s.evicted = true
	return true
}

// end ends the lives of bytes, or the trace where they live on.
func (m *Meter) end(s *space, start, end uint64, censored bool) {
	m.lives.end(s, start, end, m.recent.forget(s, start, end), censored)
}

// Finish ends the trace: what lives on is censored. Nothing may be added any more.
func (m *Meter) Finish(ns int64) {
	m.clock.advance(max(ns, m.clock.now))
	for _, s := range m.regions.spaces {
		m.end(s, 0, Forever, true)
	}
	for i, r := range m.regions.order {
		m.clock.finish(&r.Metrics)
		m.counted.order[i].fill(&r.Metrics)
		if r.Reads+r.Writes > 0 || r.Retention.Count > 0 {
			r.kind.Regions++
		}
		r.kind.Metrics.merge(&r.Metrics)
	}
	for kind, t := range m.regions.types {
		if t != nil {
			m.clock.finish(&t.Metrics)
			t.IAIs.Tally, t.Reuses.Tally, t.Strides = t.IAI, t.Reuse, *m.counted.strides[kind]
		}
	}
}

// Type is what regions of a type add up to; nil: there was none. It is valid when the trace has ended.
func (m *Meter) Type(t RegionType) *TypeMetrics {
	if k := m.regions.types[t]; k != nil && k.Regions > 0 {
		return k
	}
	return nil
}

// Region is what is known of a region, by its number; nil: it was not accessed.
func (m *Meter) Region(id int) *Metrics {
	if id < 0 {
		return nil
	}
	r, key := m.regions.lookup(id, Other)
	if key < 0 || r == nil || r.Reads+r.Writes == 0 {
		return nil
	}
	return &r.Metrics
}

// Accessed are the numbers of the regions that were accessed, in order.
func (m *Meter) Accessed() []int {
	var all []int
	for _, r := range m.regions.order {
		if r.id >= 0 && r.Reads+r.Writes > 0 {
			all = append(all, r.id)
		}
	}
	slices.SortFunc(all, cmp.Compare[int])
	return all
}

// Span is the time from the first touch to the end, in ns.
func (m *Meter) Span() (first, last int64) { return m.clock.first, m.clock.now }
