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
	// Scattered says that the bytes lie somewhere from Offset on: it is not known where, and only their number counts.
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
	windows []window
	latest  int64 // begin of the window that began last
	turn    int64 // when the next one begins
	regions byRegion[region]
	buffers map[uint64]*space
	types   [regionTypes]*TypeMetrics
	recent  recency
	first   int64
	now     int64
	at      int64 // time of the present touch
	begun   bool
	tails   []run[touched] // scratch
	heads   []run[written]
	spare   []run[written]
	spaces  []*space
}

// window is the current one of a length.
type window struct{ length, start, number int64 }

// region is one that is followed.
type region struct {
	kind   *TypeMetrics
	space  *space // its own, or that of its buffer
	buffer uint64
	// Where its bytes were found in the space.
	touched spot[touched]
	written spot[written]
	number  int32 // in the order in which they came
	isSelf  bool
	place   Place
	Metrics
	id int
}

const (
	maxSpaces = 1 << 18
	// maxSpan is how many bytes an access may touch, or lie apart: what is longer is damage, and counts with its
	// bytes alone.
	maxSpan = 1 << 48
)

// NewMeter makes a meter that measures working sets of windows of these lengths, in nanoseconds.
func NewMeter(windows ...int64) *Meter {
	m := &Meter{buffers: map[uint64]*space{}}
	for _, ns := range windows {
		if ns > 0 {
			m.windows = append(m.windows, window{length: ns})
		}
	}
	return m
}

// Declare says where a region lies, before it is touched.
func (m *Meter) Declare(id int, kind RegionType, p Place) {
	m.region(id, kind).place = p
	m.counted.region(id, kind)
}

// region is what is known of a region.
func (m *Meter) region(id int, kind RegionType) *region {
	r, key := m.regions.of(id, kind)
	if r != nil {
		return r
	}
	if key < 0 {
		id = -1
	}
	if m.types[kind] == nil {
		m.types[kind] = &TypeMetrics{Metrics: Metrics{windows: make([]workingSet, len(m.windows))}}
	}
	r = &region{Metrics: Metrics{windows: make([]workingSet, len(m.windows)), Grain: 1}, id: id, kind: m.types[kind], number: int32(len(m.regions.order))}
	r.isSelf = kind != Activation && kind != ComputeBuffer && id >= 0
	m.regions.put(key, r)
	return r
}

// spaceOf is where a region's bytes are followed.
func (m *Meter) spaceOf(r *region, buffer uint64) *space {
	if r.space != nil && (r.isSelf || r.buffer == buffer) {
		return r.space
	}
	if !r.isSelf && m.buffers[buffer] == nil && len(m.buffers) >= maxSpaces {
		buffer = 0
	}
	s := m.buffers[buffer]
	if r.isSelf || s == nil {
		s = &space{shared: !r.isSelf}
		m.spaces = append(m.spaces, s)
	}
	if r.isSelf {
		s.base, s.bytes = r.place.Offset, r.place.Bytes
	} else {
		m.buffers[buffer] = s
	}
	r.space, r.buffer, r.touched, r.written = s, buffer, spot[touched]{}, spot[written]{}
	return s
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
	if a.NS > m.now || !m.begun {
		m.advance(a.NS)
	}
	m.at = m.now
	if a.Op == OpAlloc || a.Op == OpFree {
		m.renew(a)
		return
	}
	r := m.region(a.Region, a.Type)
	s := m.spaceOf(r, a.Buffer)
	isWrite := a.Op == OpWrite
	if r.place.Written != 0 {
		m.load(s, r, isWrite)
	}
	switch {
	case a.Size == 0 || a.Scattered || a.isDamaged():
	case a.WindowNS > 0:
		if whole := r.place.Bytes; r.isSelf && whole > 0 && a.Size == whole*uint64(max(a.Count, 1)) { // each was of the whole region
			m.touch(s, r, r.place.Offset, r.place.Offset+whole, isWrite)
		}
	case a.Pieces <= 1 && s.rows == 0:
		if a.NS < m.now && isWrite && s.isNew(a.Offset, a.Offset+a.Size) {
			m.at = a.NS
		}
		m.touch(s, r, a.Offset, a.Offset+a.Size, isWrite)
	default:
		if !s.stretches(a, func(start, end uint64) { m.touch(s, r, start, end, isWrite) }) {
			r.Hulls++
		}
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
	return a.Stride > maxSpan || a.Pieces > maxSpan || uint64(a.Pieces)*a.Stride > maxSpan || a.Offset+uint64(a.Pieces)*a.Stride < a.Offset
}

// advance lets time go on.
func (m *Meter) advance(ns int64) {
	if !m.begun {
		m.first, m.now, m.begun, m.turn = ns, ns, true, ns
	}
	m.now = max(m.now, ns)
	if m.now < m.turn {
		return
	}
	m.turn = Forever
	for k := range m.windows {
		w := &m.windows[k]
		w.number = (m.now-m.first)/w.length + 1
		w.start = m.first + (w.number-1)*w.length
		m.latest = max(m.latest, w.start)
		m.turn = min(m.turn, w.start+w.length)
	}
}

// load lets a region have been written as a whole before it is touched first, if that is how it was.
func (m *Meter) load(s *space, r *region, isWrite bool) {
	at := min(r.place.Written, m.now)
	r.place.Written = 0
	if isWrite || s.shared || r.place.Bytes == 0 {
		return
	}
	start, end := r.place.Offset, r.place.Offset+r.place.Bytes
	m.heads = s.written.put(start, end, written{at, r.number, 1, true}, m.heads[:0])
	r.live(int64(end-start), m.first, at)
}

// touch follows a read or a write of a range of a space.
func (m *Meter) touch(s *space, r *region, start, end uint64, isWrite bool) {
	start, end = s.snap(start, end)
	if start >= end {
		return
	}
	if m.recent.isFull() {
		m.renumber()
	}
	weight, slot := s.weight(), m.recent.slot()
	is := touched{m.at, slot, !isWrite}
	var left int64 // bytes that nobody touched before
	if g := s.touched.exact(start, end, &r.touched); g != nil {
		m.tails = append(m.tails[:0], *g)
		g.is = is
		before, bytes := &m.tails[0].is, int64(end-start)*weight
		m.again(r, before, bytes)
		m.recent.move(before.slot, slot, bytes)
	} else {
		m.tails = s.touched.putAt(&r.touched, start, end, is, m.tails[:0])
		left = int64(end-start) - m.differ(r, slot, int64(end-start), weight)
		if left > 0 {
			m.fresh(r, left*weight)
		}
	}
	switch {
	case isWrite:
		m.write(s, r, start, end)
	case left > 0 || s.shared:
		m.read(s, r, start, end)
	}
	if s.touched.n > maxRuns || s.written.n > maxRuns {
		s.widen()
		r.Grain = max(r.Grain, s.grain)
	}
}

// differ counts bytes that are touched as one, and were not before: m.tails says what they were. It returns how many
// were touched at all.
func (m *Meter) differ(r *region, slot int32, all, weight int64) (known int64) {
	for i := range m.tails {
		o := &m.tails[i]
		n := int64(o.end - o.start)
		known += n
		m.again(r, &o.is, n*weight)
	}
	for i := range m.tails {
		o := &m.tails[i]
		m.recent.leave(o.is.slot, int64(o.end-o.start)*weight)
	}
	m.recent.come(slot, all*weight)
	return known
}

// fresh counts bytes that nobody touched before.
func (m *Meter) fresh(r *region, bytes int64) {
	for k := range m.windows {
		if m.at >= m.windows[k].start { // what is reported late belongs to a window that has passed
			m.set(r, k, bytes)
		}
	}
}

// again counts bytes that were touched before.
func (m *Meter) again(r *region, before *touched, bytes int64) {
	interval, distance := max(m.at-before.ns, 0), max(m.recent.since(before.slot), 0) // below 0 only by overflow, in damaged files
	r.IAI.Add(interval, bytes)
	r.Reuse.Add(distance, bytes)
	r.kind.IAIs.bucket(interval).add(interval, bytes) // what they add up to is known of regions
	r.kind.Reuses.bucket(distance).add(distance, bytes)
	if before.ns >= m.latest {
		return
	}
	for k := range m.windows {
		if before.ns < m.windows[k].start {
			m.set(r, k, bytes)
		}
	}
}

// set adds bytes to the working set of a window.
func (m *Meter) set(r *region, k int, bytes int64) {
	r.windows[k].add(m.windows[k].number, bytes)
	r.kind.windows[k].add(m.windows[k].number, bytes)
}

// renumber renumbers the slots of touches.
func (m *Meter) renumber() {
	numbers := m.recent.renumber()
	for _, s := range m.spaces {
		s.touched.each(func(g *run[touched]) { g.is.slot = numbers[g.is.slot] })
	}
}

// Finish ends the trace: what lives on is censored. Nothing may be added any more.
func (m *Meter) Finish(ns int64) {
	m.advance(max(ns, m.now))
	for _, s := range m.spaces {
		m.end(s, 0, Forever, true)
	}
	for k := range m.windows {
		last := (m.now-m.first)/m.windows[k].length + 1
		for _, r := range m.regions.order {
			r.windows[k].finish(last)
		}
		for _, t := range m.types {
			if t != nil {
				t.windows[k].finish(last)
			}
		}
	}
	for i, r := range m.regions.order {
		m.counted.order[i].fill(&r.Metrics)
		if r.Reads+r.Writes > 0 || r.Retention.Count > 0 {
			r.kind.Regions++
		}
		r.kind.Metrics.merge(&r.Metrics)
	}
	for kind, t := range m.types {
		if t != nil {
			t.IAIs.Tally, t.Reuses.Tally, t.Strides = t.IAI, t.Reuse, *m.counted.strides[kind]
		}
	}
}

// Type is what regions of a type add up to; nil: there was none. It is valid when the trace has ended.
func (m *Meter) Type(t RegionType) *TypeMetrics {
	if k := m.types[t]; k != nil && k.Regions > 0 {
		return k
	}
	return nil
}

// Region is what is known of a region, by its number; nil: it was not accessed.
func (m *Meter) Region(id int) *Metrics {
	if id < 0 {
		return nil
	}
	r, key := m.regions.of(id, Other)
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
func (m *Meter) Span() (first, last int64) { return m.first, m.now }
