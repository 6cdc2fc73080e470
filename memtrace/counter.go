package memtrace

// Hot path: 10 ns per access, no allocation in steady state.

// byRegion keeps something of each region, by its number. Of each type, those that are not known, or too many, are one.
type byRegion[T any] struct {
	dense  []*T
	sparse map[int]*T
	order  []*T // in which they came
}

const (
	maxDense   = 1 << 20 // regions that are found by their number at once
	maxRegions = 1 << 18 // that are distinguished
)

// lookup returns what is kept of a region, and the key that it has; nil: nothing yet. Below 0 the key is one of a type.
func (t *byRegion[T]) lookup(id int, kind RegionType) (kept *T, key int) {
	if uint(id) < uint(len(t.dense)) && t.dense[id] != nil {
		return t.dense[id], id
	}
	if key = id; id < 0 || t.sparse[id] == nil && len(t.order) >= maxRegions {
		key = -1 - int(kind)
	}
	return t.sparse[key], key
}

// put keeps something under a key of which nothing was kept.
func (t *byRegion[T]) put(key int, v *T) {
	t.order = append(t.order, v)
	if key < 0 || key >= maxDense {
		if t.sparse == nil {
			t.sparse = map[int]*T{}
		}
		t.sparse[key] = v
		return
	}
	if key >= len(t.dense) {
		t.dense = append(t.dense, make([]*T, key+1-len(t.dense))...)
	}
	t.dense[key] = v
}

// counter is what accesses to a region add up to. It becomes part of its Metrics when the trace has ended.
type counter struct {
	reads, writes           int64
	bytesRead, bytesWritten uint64
	coarse                  int64
	lines                   int64 // of 64 bytes, as they were touched
	jumps                   int64 // of them, those that do not lie after the one before
	next                    uint64
	strides                 *Distribution // of its type
}

// counters count accesses.
type counters struct {
	byRegion[counter]
	strides [regionTypes]*Distribution
}

// region is the counter of a region.
func (t *counters) region(id int, kind RegionType) *counter {
	c, key := t.lookup(id, kind)
	if c != nil {
		return c
	}
	if t.strides[kind] == nil {
		t.strides[kind] = &Distribution{}
	}
	c = &counter{strides: t.strides[kind]}
	t.put(key, c)
	return c
}

// lineBytes is what memory comes to a cache in.
const lineBytes = 64

// count takes an access in, and how far it lies from the one before.
func (c *counter) count(a *Touch) {
	n := max(a.Count, 1)
	if a.Op == OpWrite {
		c.writes += n
		c.bytesWritten += a.Size
	} else {
		c.reads += n
		c.bytesRead += a.Size
	}
	if a.WindowNS > 0 || a.Scattered || a.isDamaged() {
		c.coarse += n
		return
	}
	pieces, each, span := int64(1), a.Size, a.Size
	if a.Pieces > 1 {
		pieces, each = a.Pieces, a.Size/uint64(a.Pieces)
		span = uint64(pieces-1)*a.Stride + each
	}
	stride, isFirst := int64(a.Offset-c.next), c.lines == 0
	c.jumps += pieces
	if isFirst || stride == 0 {
		c.jumps--
	}
	c.lines += pieces * int64((each+lineBytes-1)/lineBytes)
	c.next = a.Offset + span
	if !isFirst {
		c.strides.Add(max(stride, -stride), 1)
	}
}

// fill writes what was counted into a region's metrics.
func (c *counter) fill(m *Metrics) {
	m.Reads, m.Writes, m.BytesRead, m.BytesWritten = c.reads, c.writes, c.bytesRead, c.bytesWritten
	m.Coarse, m.lines, m.jumps = c.coarse, c.lines, c.jumps
}
