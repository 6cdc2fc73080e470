package memtrace

import (
	"cmp"
	"fmt"
)

// RegionMap says what lies in memory: in buffers, by offset; in the host's memory, by address and time. Looking up
// takes a time that grows with the logarithm of what is there. It is for one goroutine.
type RegionMap struct {
	Layouts Layouts            // where tensors lie in compute buffers
	buffers map[uint64]*Buffer // freed ones too
	regions []*Region          // by ID
	host    spans              // IDs of buffers, as numbers of order
	order   []*Buffer          // in which they were reported
	maps    spans              // of mappings, as IDs of regions
	mapped  []mapped           // live ones, by address
	spare   []mapped           // memory for those that come next
	moving  map[activationKey]*Region
	pid     int32 // that new regions have
}

// NewRegionMap makes a map of nothing.
func NewRegionMap() *RegionMap {
	return &RegionMap{buffers: map[uint64]*Buffer{}, moving: map[activationKey]*Region{}}
}

// fresh gives a region its number.
func (m *RegionMap) fresh(r Region) *Region {
	r.ID, r.PID = len(m.regions), m.pid
	kept := &r
	m.regions = append(m.regions, kept)
	return kept
}

// OfProcess says which process the memory belongs to, that of regions which are there already too.
func (m *RegionMap) OfProcess(pid int32) {
	m.pid = pid
	for _, r := range m.regions {
		r.PID = pid
	}
}

// Adopt takes a region of another map into this one's table, under a number of its own, and says of which process
// it is: tables of several processes are one. It is found by no address of this map. One that belongs to a process
// already stays what it is.
func (m *RegionMap) Adopt(r *Region, pid int32) {
	if r.PID != 0 || pid == 0 {
		return
	}
	r.ID, r.PID = len(m.regions), pid
	m.regions = append(m.regions, r)
}

// AddBuffer takes a buffer in. One that is known is reported again, when it is said what it is for and of which
// kind. To is taken as Forever if it is 0.
func (m *RegionMap) AddBuffer(b Buffer) error {
	if known := m.buffers[b.ID]; known != nil {
		known.Usage, known.Type, known.Device = b.Usage, b.Type, b.Device
		for _, r := range known.cover {
			r.Type = known.holds(r)
			if gap(r) {
				r.Name = known.asRegion().Name
			}
		}
		known.settle(0, len(known.cover))
		return nil
	}
	if b.ID == 0 || b.Size == 0 || b.Base+b.Size < b.Base {
		return fmt.Errorf("buffer %d of %d bytes at %#x: invalid buffer", b.ID, b.Size, b.Base)
	}
	b.To = cmp.Or(b.To, Forever)
	kept := &b
	kept.cover = []*Region{m.fresh(b.asRegion())}
	m.buffers[b.ID] = kept
	kept.number = len(m.order)
	m.order = append(m.order, kept)
	if b.Host {
		m.host.add(b.Base, b.Base+b.Size, kept.number, b.From)
		if b.To != Forever {
			m.host.end(b.Base, b.Base+b.Size, kept.number, b.To)
		}
	}
	return nil
}

// FreeBuffer ends a buffer's life. One that is not known is ignored, as is one that has ended.
func (m *RegionMap) FreeBuffer(id uint64, ns int64) {
	b := m.buffers[id]
	if b == nil || b.To != Forever {
		return
	}
	b.To = max(ns, b.From)
	for _, r := range b.cover {
		r.To = b.To
	}
	if b.Host {
		m.host.end(b.Base, b.Base+b.Size, b.number, b.To)
	}
}

// Buffer is what is known of a buffer; nil. It may not be changed.
func (m *RegionMap) Buffer(id uint64) *Buffer { return m.buffers[id] }

// Buffers returns all buffers, freed ones included, in the order in which they were reported.
func (m *RegionMap) Buffers() []*Buffer { return m.order }

// Place records that a tensor lies in a buffer for as long as the buffer lives: a weight, or part of a cache. Reported
// again, or of a view, it returns the tensor that is known; given what others turn out to be views of, it takes
// their place.
func (m *RegionMap) Place(t Tensor) (*Region, error) {
	b := m.buffers[t.Buffer]
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: %s in buffer %d, which is not known", ErrPlace, t.Name, t.Buffer)
	case b.To != Forever:
		return nil, fmt.Errorf("%w: %s in buffer %d, which was freed", ErrPlace, t.Name, t.Buffer)
	case t.Name == "" || t.Bytes == 0 || t.Offset+t.Bytes < t.Offset || t.Offset+t.Bytes > b.Size:
		return nil, fmt.Errorf("%w: %q at %d of buffer %d, %d bytes; the buffer has %d", ErrPlace, t.Name, t.Offset,
			t.Buffer, t.Bytes, b.Size)
	}
	r := b.asRegion()
	r.Name, r.Tensor, r.Part, r.Layer, r.DType, r.Shape, r.Offset, r.Bytes = t.Name, t.Name, t.Part, t.Layer, t.DType,
		t.Shape, t.Offset, t.Bytes
	r.Type = b.holds(&r)
	return b.put(r, m.fresh)
}

// Hit is what lies at an address, or at a place in a buffer.
type Hit struct {
	Region *Region // nil: nothing that is known
	Offset uint64  // in the region
}

// Type is that of the region, or Other.
func (h Hit) Type() RegionType {
	if h.Region == nil {
		return Other
	}
	return h.Region.Type
}

// At is what lies in a buffer at an offset for as long as the buffer lives. In a compute buffer that is the buffer
// as a whole.
func (m *RegionMap) At(buffer, offset uint64) Hit {
	b := m.buffers[buffer]
	if b == nil || offset >= b.Size {
		return Hit{}
	}
	r := b.cover[b.index(offset)]
	return Hit{r, offset - r.Offset}
}

// Address is what lies at an address of the host at a time. In a compute buffer it is the activation of the graph that
// was computed then, if only one of its tensors uses the address; of times that are long gone, it is the buffer.
func (m *RegionMap) Address(addr uint64, ns int64) Hit {
	var found Hit
	for _, number := range m.host.at(addr, ns) {
		b := m.order[number]
		h := m.at(b, addr-b.Base, ns)
		if found.Region == nil || better(h.Region, found.Region) {
			found = h
		}
	}
	if found.Region != nil {
		return found
	}
	if live := m.maps.at(addr, ns); len(live) > 0 {
		r := m.regions[live[len(live)-1]]
		return Hit{r, addr - r.Offset}
	}
	return Hit{}
}

// better picks the region to report of two of buffers that lie at the same address: a tensor, then the smaller one.
func better(a, b *Region) bool {
	if gap(a) != gap(b) {
		return gap(b)
	}
	return a.Bytes < b.Bytes
}

// at is what lies at an offset of a buffer at a time.
func (m *RegionMap) at(b *Buffer, offset uint64, ns int64) Hit {
	h := m.At(b.ID, offset)
	if b.Usage != UsageCompute {
		return h
	}
	for l := range m.Layouts.at(ns) {
		if only := l.onlyTensorAt(b.ID, offset); only.Region != nil {
			return only
		}
	}
	return h
}

// Regions are all regions, by ID, without those that turned out to be views of others, and gaps that turned out to
// be filled.
func (m *RegionMap) Regions() []*Region {
	regions := make([]*Region, 0, len(m.regions))
	for _, r := range m.regions {
		if r.root == nil && r.Bytes > 0 {
			regions = append(regions, r)
		}
	}
	return regions
}
