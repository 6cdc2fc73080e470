package memtrace

import (
	"cmp"
	"slices"
)

// Touch is an access to one block of a region: an [Access] of which it is known where it goes.
type Touch struct {
	NS     int64    // touches come in the order of time; one that comes late counts as of the newest
	Op     AccessOp // of OpAlloc the block's life begins, as it does with its first touch; an op that is not known counts as a read
	Type   RegionType
	Region int    // number of its region
	Block  int64  // number of the block in its region
	Bytes  uint64 // of the block: what a working set counts
	Offset uint64 // of what was accessed, in the region
	Size   uint64 // bytes that were accessed
}

// Meter computes the metrics of mrm-trace from touches as they come, by region and by type of region, in memory that grows with the number of
// blocks that live and of regions, never with that of accesses.
type Meter struct {
	windows []int64
	blocks  map[blockKey]*followed
	types   [regionTypes]*Metrics
	regions map[int]*Metrics
	order   reuse
	first   int64
	now     int64
	begun   bool
}

type blockKey struct {
	region int
	block  int64
}

// followed is a block that lives.
type followed struct {
	kind      RegionType
	bytes     uint64
	born      int64
	written   int64 // when it was written last
	read      int64 // when it was read last since then
	touched   int64 // when it was touched last
	writes    int64
	isTouched bool
	isRead    bool
	seen      []int64 // number of the newest window in which it was touched, +1; by window length
	place     int     // in reuse
}

// NewMeter makes a meter that measures working sets of windows of these lengths, in nanoseconds.
func NewMeter(windows ...int64) *Meter {
	windows = slices.DeleteFunc(slices.Clone(windows), func(ns int64) bool { return ns <= 0 })
	return &Meter{windows: windows, blocks: map[blockKey]*followed{}, regions: map[int]*Metrics{}}
}

// Add takes a touch in.
func (m *Meter) Add(a *Touch) {
	if !m.begun {
		m.first, m.now, m.begun = a.NS, a.NS, true
	}
	m.now = max(m.now, a.NS)
	key := blockKey{a.Region, a.Block}
	b := m.blocks[key]
	sums := m.sums(a.Type, a.Region)
	if a.Op == OpFree || a.Op == OpAlloc {
		if b != nil {
			m.end(b, sums, false)
			delete(m.blocks, key)
		}
		if a.Op == OpFree {
			return
		}
		b = nil
	}
	if b == nil {
		b = &followed{kind: a.Type, bytes: a.Bytes, born: m.now, seen: make([]int64, len(m.windows))}
		m.blocks[key] = b
	}
	if a.Op != OpAlloc {
		m.touch(b, a, sums)
	}
}

// sums are those that a touch counts in: of its type, and of its region.
func (m *Meter) sums(kind RegionType, region int) [2]*Metrics {
	if m.types[kind] == nil {
		m.types[kind] = newMetrics(len(m.windows))
	}
	r := m.regions[region]
	if r == nil {
		r = newMetrics(len(m.windows))
		m.regions[region] = r
	}
	return [2]*Metrics{m.types[kind], r}
}

// touch counts a read or a write.
func (m *Meter) touch(b *followed, a *Touch, sums [2]*Metrics) {
	distance, again := m.order.touch(b)
	for _, s := range sums {
		if again {
			s.Reuse.Add(int64(distance))
		}
		if b.isTouched {
			s.IAI.Add(m.now - b.touched)
		}
		s.stride(a)
		if a.Op != OpWrite {
			s.Reads++
			s.BytesRead += a.Size
			continue
		}
		s.Writes++
		s.BytesWritten += a.Size
		if b.writes > 0 {
			s.Retention.Add(b.retained(), false)
		}
	}
	for k, length := range m.windows {
		if n := (m.now-m.first)/length + 1; b.seen[k] != n {
			b.seen[k] = n
			for _, s := range sums {
				s.windows[k].add(n, b.bytes)
			}
		}
	}
	b.touched, b.isTouched = m.now, true
	if a.Op == OpWrite {
		b.written, b.isRead, b.writes = m.now, false, b.writes+1
	} else if b.writes > 0 {
		b.read, b.isRead = m.now, true
	}
}

// retained is how long what was written last was needed: up to the last read. What nobody read was needed for no time.
func (b *followed) retained() int64 {
	if !b.isRead {
		return 0
	}
	return b.read - b.written
}

// end counts a block whose life ends, or of which nothing more is seen.
func (m *Meter) end(b *followed, sums [2]*Metrics, censored bool) {
	m.order.forget(b)
	for _, s := range sums {
		s.Blocks++
		s.LiveNS += m.now - b.born
		if b.writes > 0 {
			s.Written++
			s.Retention.Add(b.retained(), censored)
		}
		if b.writes == 1 {
			s.WrittenOnce++
		}
	}
}

// Finish ends the trace: what lives on is censored. Nothing may be added any more.
func (m *Meter) Finish(ns int64) {
	m.now = max(m.now, ns)
	keys := make([]blockKey, 0, len(m.blocks))
	for key := range m.blocks {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b blockKey) int { return cmp.Or(cmp.Compare(a.region, b.region), cmp.Compare(a.block, b.block)) })
	for _, key := range keys {
		b := m.blocks[key]
		m.end(b, m.sums(b.kind, key.region), true)
	}
	clear(m.blocks)
	for k, length := range m.windows {
		last := (m.now-m.first)/length + 1
		for _, s := range m.types {
			if s != nil {
				s.windows[k].finish(last)
			}
		}
		for _, s := range m.regions {
			s.windows[k].finish(last)
		}
	}
}

// Type is what regions of a type add up to; nil: there was none.
func (m *Meter) Type(t RegionType) *Metrics { return m.types[t] }

// Region is what is known of a region, by its number; nil: it was not accessed.
func (m *Meter) Region(id int) *Metrics { return m.regions[id] }
