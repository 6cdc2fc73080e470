package oplog

import (
	"maps"
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

// memory is the buffers of ggml's backends, and the weights in them.
type memory struct {
	*writer
	weights                      map[ggmlhooks.Place]bool // that were recorded
	buffers                      map[uint64]*buffer
	waiting                      []*buffer // allocated, and not recorded: what they are for is reported right after
	live, peak, allocated, freed uint64
}

// byUsage is the bytes of live buffers by what they are for.
func (m *memory) byUsage() (sums [3]uint64) {
	for _, b := range m.buffers {
		sums[min(int(b.Usage), len(sums)-1)] += b.Size
	}
	return sums
}

// buffer is one of them.
type buffer struct {
	ggmlhooks.Buffer
	live   uint64 // bytes of all buffers, with it
	number int64  // that its resource_id ends with; 0: none has been made
}

// device is the name of the device that computes what is in a buffer, "" where it is not known. Of the host's memory
// that is the CPU: ggml gives it pinned memory, which belongs to the GPU that copies from it.
func (m *memory) device(id uint64) string {
	b := m.buffers[id]
	switch {
	case b == nil:
		return ""
	case b.Host && b.Device != "":
		return "CPU"
	}
	return b.Device
}

// allocate takes an allocation in. It is recorded by settle: a program says only after it what it is for.
func (m *memory) allocate(b *ggmlhooks.Buffer) {
	m.noteTime(b.MonoNS)
	if known := m.buffers[b.ID]; known != nil {
		known.Usage, known.Type, known.Device = b.Usage, b.Type, b.Device
		return
	}
	if b.Size == 0 {
		return
	}
	m.live += b.Size
	m.allocated += b.Size
	m.peak = max(m.peak, m.live)
	kept := &buffer{Buffer: *b, live: m.live}
	m.buffers[b.ID] = kept
	m.waiting = append(m.waiting, kept)
}

// settle records the allocations that wait.
func (m *memory) settle() {
	for _, b := range m.waiting {
		if level := m.level(); level.Includes(resource.KindAllocation) &&
			(level > resource.Minimal || b.Size >= resource.MinimalAllocation) {
			m.recordAllocation(b)
		}
	}
	m.waiting = m.waiting[:0]
}

func (m *memory) recordAllocation(b *buffer) {
	m.begin(resource.KindAllocation, b.MonoNS, noCtx)
	m.describe(b)
	sized := b.Usage != ggmlhooks.BufferWeights // its weights have their sizes
	if sized {
		m.Float("allocation_size_mb", float64(b.Size)/mib)
	}
	m.describeKind(b)
	if !m.legacy {
		m.put(resource.Measured)
		return
	}
	m.Float("estimated_bandwidth_gbps", resource.LegacyBandwidth("allocation", int64(b.Size), 1))
	m.Float("compression_ratio", 1)
	m.mark(resource.Measured, "allocation_bytes", "live_bytes", "memory_address")
	if sized {
		m.mark(resource.Measured, "allocation_size_mb")
	}
	m.put(resource.Estimated)
}

// free records memory that was freed.
func (m *memory) free(e ggmlhooks.BufferEnd) {
	m.noteTime(e.MonoNS)
	b := m.buffers[e.ID]
	if b == nil {
		return // of no bytes
	}
	delete(m.buffers, e.ID)
	maps.DeleteFunc(m.weights, func(p ggmlhooks.Place, _ bool) bool { return p.Buffer == e.ID })
	m.live -= b.Size
	m.freed += b.Size
	if !m.level().Includes(resource.KindDeallocation) {
		return
	}
	m.begin(resource.KindDeallocation, e.MonoNS, noCtx)
	m.describe(b)
	m.Float("allocation_size_mb", float64(b.Size)/mib)
	m.Uint("live_bytes", m.live)
	m.Int("lifetime_us", (e.MonoNS-b.MonoNS)/1000)
	m.put(resource.Measured)
}

// recordWeights records the weights that a graph reads and that were not recorded.
func (m *memory) recordWeights(g *ggmlhooks.Graph) {
	if !m.level().Includes(resource.KindAllocation) {
		return
	}
	component := map[int32]ggmlhooks.Component{}
	for i := range g.Nodes {
		for _, src := range g.Nodes[i].Src {
			if at := g.Shown(src); at < 0 {
				if _, known := component[at]; !known {
					component[at] = g.Nodes[i].Component
				}
			}
		}
	}
	for i := range g.Leafs {
		t := &g.Leafs[i]
		b := m.buffers[t.Buffer]
		size := sizeOf(t.Type, t.NE)
		if t.Input || b == nil || b.Usage != ggmlhooks.BufferWeights || m.weights[t.Place] ||
			m.level() == resource.Minimal && size < resource.MinimalAllocation {
			continue
		}
		m.weights[t.Place] = true
		m.recordWeight(b, t, component[int32(-1-i)].String(), size)
	}
}

func (m *memory) recordWeight(b *buffer, t *ggmlhooks.Leaf, component string, size int64) {
	layer, kind := ggmlhooks.WeightLayer(t.Name), gguf.Type(t.Type)
	m.begin(resource.KindAllocation, b.MonoNS, noCtx)
	m.resourceID(idStart(b.Device, "memory", layer, component), b.MonoNS)
	m.Uint("buffer_id", b.ID)
	m.String("component_type", component)
	m.Int("layer_id", int64(layer))
	m.String("name", t.Name)
	m.Int("tensor_bytes", size)
	m.Float("allocation_size_mb", float64(size)/mib)
	m.addPlace(b, t.Offset)
	m.Key("tensor_shape")
	m.Append(func(dst []byte) []byte { return appendShape(dst, t.NE) })
	m.String("precision", kind.String())
	m.describeKind(b)
	if m.legacy {
		ratio := resource.LegacyRatio(kind.String())
		m.Float("estimated_bandwidth_gbps", resource.LegacyBandwidth("weight_load", size, ratio))
		m.Float("compression_ratio", ratio)
	}
	m.mark(resource.Computed, "tensor_bytes", "allocation_size_mb")
	m.mark(resource.Measured, "live_bytes", "memory_address")
	m.put(m.weakest())
}

// describe adds what an allocation and its end have in common.
func (m *memory) describe(b *buffer) {
	kind := b.Usage.String()
	id := idStart(b.Device, "memory", ggmlhooks.NoLayer, kind)
	if b.number == 0 {
		b.number = m.number(id, b.MonoNS)
	}
	writeID(&m.Line, id, b.number)
	m.Uint("buffer_id", b.ID)
	m.String("component_type", kind)
	m.Int("layer_id", ggmlhooks.NoLayer)
	m.Uint("allocation_bytes", b.Size)
	m.addPlace(b, 0)
}

// describeKind adds what kind of memory a buffer is.
func (m *memory) describeKind(b *buffer) {
	m.String("buffer_type", b.Type)
	if b.Device != "" {
		m.String("device", b.Device)
	}
	m.Bool("mapped", b.Mapped)
	m.Uint("live_bytes", b.live)
}

// addPlace adds where something lies in a buffer.
func (m *memory) addPlace(b *buffer, offset uint64) {
	memoryType := "vram"
	if b.Host {
		memoryType = "ram"
	}
	m.String("memory_type", memoryType)
	m.Key("memory_address")
	m.Append(func(dst []byte) []byte {
		return append(strconv.AppendUint(append(dst, `"0x`...), b.Base+offset, 16), '"')
	})
}
