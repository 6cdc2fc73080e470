package memtrace

// region is one that is followed.
type region struct {
	kind   *TypeMetrics
	space  *space // its own, or that of its buffer
	buffer uint64
	number int32 // in the order in which they came
	isSelf bool
	place  Place
	Metrics
	id int
}

// followed are the regions whose bytes are followed, and the spaces where they are.
type followed struct {
	byRegion[region]
	buffers map[uint64]*space
	types   [regionTypes]*TypeMetrics
	spaces  []*space
	windows int // how many lengths of windows there are
}

// maxSpaces is how many buffers are distinguished.
const maxSpaces = 1 << 18

// region is what is known of a region.
func (f *followed) region(id int, kind RegionType) *region {
	r, key := f.lookup(id, kind)
	if r != nil {
		return r
	}
	if key < 0 {
		id = -1
	}
	if f.types[kind] == nil {
		f.types[kind] = &TypeMetrics{Metrics: Metrics{windows: make([]workingSet, f.windows)}}
	}
	r = &region{
		Metrics: Metrics{windows: make([]workingSet, f.windows), Grain: 1},
		id:      id, kind: f.types[kind], number: int32(len(f.order)),
		isSelf: kind != Activation && kind != ComputeBuffer && id >= 0,
	}
	f.put(key, r)
	return r
}

// spaceOf is where a region's bytes are followed.
func (f *followed) spaceOf(r *region, buffer uint64) *space {
	if r.space != nil && (r.isSelf || r.buffer == buffer) {
		return r.space
	}
	if !r.isSelf && f.buffers[buffer] == nil && len(f.buffers) >= maxSpaces {
		buffer = 0
	}
	s := f.buffers[buffer]
	if r.isSelf || s == nil {
		s = &space{shared: !r.isSelf}
		f.spaces = append(f.spaces, s)
	}
	if r.isSelf {
		s.base, s.bytes = r.place.Offset, r.place.Bytes
	} else {
		f.buffers[buffer] = s
	}
	r.space, r.buffer = s, buffer
	return s
}

// renumber gives touches the new numbers of their slots.
func (f *followed) renumber(numbers []int32) {
	for _, s := range f.spaces {
		s.touched.each(func(g *run[touched]) { g.is.slot = numbers[g.is.slot] })
	}
}
