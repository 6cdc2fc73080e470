package oplog

import (
	"maps"
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

// memory is the buffers of ggml's backends.
type memory struct {
	weights                      map[ggmlhooks.Place]bool // that were recorded
	buffers                      map[uint64]*buffer
	waiting                      []*buffer // allocated, and not recorded: what they are for is reported right after
	live, peak, allocated, freed uint64
}

// buffer is one of them.
type buffer struct {
	ggmlhooks.Buffer
	live   uint64 // bytes of all buffers, with it
	number int64  // that its resource_id ends with; 0: none has been made
}

// device is the name of a buffer's device, "" where it is not known.
func (m *memory) device(id uint64) string {
	if b := m.buffers[id]; b != nil {
		return b.Device
	}
	return ""
}

// Buffer takes an allocation in. It is recorded when something else comes: a program says first what it is for.
func (r *Recorder) Buffer(b *ggmlhooks.Buffer) error {
	m := &r.memory
	r.head.see(b.MonoNS)
	if known := m.buffers[b.ID]; known != nil {
		known.Usage, known.Type, known.Device = b.Usage, b.Type, b.Device
		return nil
	}
	if b.Size == 0 {
		return nil
	}
	m.live += b.Size
	m.allocated += b.Size
	m.peak = max(m.peak, m.live)
	kept := &buffer{Buffer: *b, live: m.live}
	m.buffers[b.ID] = kept
	m.waiting = append(m.waiting, kept)
	return nil
}

// settleBuffers records the allocations that wait.
func (r *Recorder) settleBuffers() {
	m := &r.memory
	if len(m.waiting) == 0 {
		return
	}
	for _, b := range m.waiting {
		if r.Level().Includes(resource.KindAllocation) && (r.Level() > resource.Minimal || b.Size >= resource.MinimalAllocation) {
			r.emitAllocation(b)
		}
	}
	m.waiting = m.waiting[:0]
}

func (r *Recorder) emitAllocation(b *buffer) {
	l := &r.line
	r.begin(resource.KindAllocation, b.MonoNS, noCtx)
	r.bufferFields(b)
	sized := b.Usage != ggmlhooks.BufferWeights // its weights have their sizes
	if sized {
		l.Float("allocation_size_mb", float64(b.Size)/mib)
	}
	r.kindFields(b)
	if r.o.Legacy {
		l.Float("estimated_bandwidth_gbps", resource.LegacyBandwidth("allocation", int64(b.Size), 1))
		l.Float("compression_ratio", 1)
		r.mark(resource.Measured, "allocation_bytes", "live_bytes")
		if sized {
			r.mark(resource.Measured, "allocation_size_mb")
		}
		r.put(resource.KindAllocation, resource.Estimated)
		return
	}
	r.put(resource.KindAllocation, resource.Measured)
}

// kindFields adds what kind of memory a buffer is.
func (r *Recorder) kindFields(b *buffer) {
	l := &r.line
	l.String("buffer_type", b.Type)
	if b.Device != "" {
		l.String("device", b.Device)
	}
	l.Bool("mapped", b.Mapped)
	l.Uint("live_bytes", b.live)
}

// emitWeights records the weights that a graph reads and that were not recorded.
func (r *Recorder) emitWeights(g *ggmlhooks.Graph) {
	if !r.Level().Includes(resource.KindAllocation) {
		return
	}
	component := map[int32]ggmlhooks.Component{}
	for i := range g.Nodes {
		for _, src := range g.Nodes[i].Src {
			if at := origin(g, src); at < 0 {
				if _, known := component[at]; !known {
					component[at] = g.Nodes[i].Component
				}
			}
		}
	}
	for i := range g.Leafs {
		t := &g.Leafs[i]
		b := r.memory.buffers[t.Buffer]
		size := sizeOf(t.Type, t.NE)
		if t.Input || b == nil || b.Usage != ggmlhooks.BufferWeights || r.memory.weights[t.Place] || r.Level() == resource.Minimal && size < resource.MinimalAllocation {
			continue
		}
		r.memory.weights[t.Place] = true
		r.emitWeight(b, t, component[int32(-1-i)].String(), size)
	}
}

func (r *Recorder) emitWeight(b *buffer, t *ggmlhooks.Leaf, component string, size int64) {
	l, layer, kind := &r.line, ggmlhooks.WeightLayer(t.Name), gguf.Type(t.Type)
	r.begin(resource.KindAllocation, b.MonoNS, noCtx)
	r.head.resourceID(l, idStart(b.Device, "memory", layer, component), b.MonoNS)
	l.Uint("buffer_id", b.ID)
	l.String("component_type", component)
	l.Int("layer_id", int64(layer))
	l.String("name", t.Name)
	l.Int("tensor_bytes", size)
	l.Float("allocation_size_mb", float64(size)/mib)
	r.placeFields(b, t.Offset)
	l.Key("tensor_shape")
	l.Append(func(dst []byte) []byte { return appendShape(dst, t.NE) })
	l.String("precision", kind.String())
	r.kindFields(b)
	if r.o.Legacy {
		ratio := resource.LegacyRatio(kind.String())
		l.Float("estimated_bandwidth_gbps", resource.LegacyBandwidth("weight_load", size, ratio))
		l.Float("compression_ratio", ratio)
	}
	r.mark(resource.Measured, "live_bytes", "memory_address")
	r.put(resource.KindAllocation, r.weakest())
}

// bufferFields adds what an allocation and its end have in common.
func (r *Recorder) bufferFields(b *buffer) {
	l, kind := &r.line, b.Usage.String()
	id := idStart(b.Device, "memory", ggmlhooks.NoLayer, kind)
	if b.number == 0 {
		b.number = r.head.number(id, b.MonoNS)
	}
	writeID(l, id, b.number)
	l.Uint("buffer_id", b.ID)
	l.String("component_type", kind)
	l.Int("layer_id", ggmlhooks.NoLayer)
	l.Uint("allocation_bytes", b.Size)
	r.placeFields(b, 0)
}

// placeFields adds where something lies in a buffer.
func (r *Recorder) placeFields(b *buffer, offset uint64) {
	l, memoryType := &r.line, "vram"
	if b.Host {
		memoryType = "ram"
	}
	l.String("memory_type", memoryType)
	l.Key("memory_address")
	l.Append(func(dst []byte) []byte {
		return append(strconv.AppendUint(append(dst, `"0x`...), b.Base+offset, 16), '"')
	})
}

// BufferEnd records memory that was freed.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.settleBuffers()
	r.head.see(e.MonoNS)
	m := &r.memory
	b := m.buffers[e.ID]
	if b == nil {
		return nil // of no bytes
	}
	delete(m.buffers, e.ID)
	maps.DeleteFunc(m.weights, func(p ggmlhooks.Place, _ bool) bool { return p.Buffer == e.ID })
	m.live -= b.Size
	m.freed += b.Size
	if !r.Level().Includes(resource.KindDeallocation) {
		return nil
	}
	r.begin(resource.KindDeallocation, e.MonoNS, noCtx)
	r.bufferFields(b)
	r.line.Float("allocation_size_mb", float64(b.Size)/mib)
	r.line.Uint("live_bytes", m.live)
	r.line.Int("lifetime_us", (e.MonoNS-b.MonoNS)/1000)
	r.put(resource.KindDeallocation, resource.Measured)
	return nil
}
