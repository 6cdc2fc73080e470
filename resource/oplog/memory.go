package oplog

import (
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// memory is the buffers of ggml's backends.
type memory struct {
	buffers                      map[uint64]*buffer
	waiting                      []*buffer // allocated, and not told: what they are for is said right behind
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

// Buffer takes an allocation in. It is told when something else comes: a program says first what it is for.
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

// settleBuffers tells of the allocations that wait.
func (r *Recorder) settleBuffers() {
	m := &r.memory
	if len(m.waiting) == 0 {
		return
	}
	for _, b := range m.waiting {
		if r.level.Tells(resource.KindAllocation) && (r.level > resource.Minimal || b.Size >= resource.MinimalAllocation) {
			r.tellAllocation(b)
		}
	}
	m.waiting = m.waiting[:0]
}

func (r *Recorder) tellAllocation(b *buffer) {
	l := &r.line
	r.begin(resource.KindAllocation, b.MonoNS, noCtx)
	r.bufferFields(b)
	l.String("buffer_type", b.Type)
	if b.Device != "" {
		l.String("device", b.Device)
	}
	l.Bool("mapped", b.Mapped)
	l.Uint("live_bytes", b.live)
	if r.o.Legacy {
		l.Float("estimated_bandwidth_gbps", resource.LegacyBandwidth("allocation", int64(b.Size), 1))
		l.Float("compression_ratio", 1)
		r.mark(resource.Measured, "allocation_bytes", "allocation_size_mb", "live_bytes")
		r.put(resource.KindAllocation, resource.Estimated)
		return
	}
	r.put(resource.KindAllocation, resource.Measured)
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
	l.Float("allocation_size_mb", float64(b.Size)/mib)
	memoryType := "vram"
	if b.Host {
		memoryType = "ram"
	}
	l.String("memory_type", memoryType)
	l.Key("memory_address")
	l.Append(func(dst []byte) []byte {
		return append(strconv.AppendUint(append(dst, `"0x`...), b.Base, 16), '"')
	})
}

// BufferEnd tells of memory that was freed.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.settleBuffers()
	r.head.see(e.MonoNS)
	m := &r.memory
	b := m.buffers[e.ID]
	if b == nil {
		return nil // of no bytes
	}
	delete(m.buffers, e.ID)
	m.live -= b.Size
	m.freed += b.Size
	if !r.level.Tells(resource.KindDeallocation) {
		return nil
	}
	r.begin(resource.KindDeallocation, e.MonoNS, noCtx)
	r.bufferFields(b)
	r.line.Uint("live_bytes", m.live)
	r.line.Int("lifetime_us", (e.MonoNS-b.MonoNS)/1000)
	r.put(resource.KindDeallocation, resource.Measured)
	return nil
}
