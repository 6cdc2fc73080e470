package ledger

import (
	"fmt"
	"io"
	"sort"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
)

// Hot path: per execution one pass over the regions that its graph touches, and no allocation in steady state.

// RegionOptions say how a RegionRecorder works.
type RegionOptions struct {
	// Out gets region_map.parquet; nil: there is only the map. It is not closed.
	Out io.Writer
	// UnixOffset is what must be added to a monotonic time to make it a Unix time, in nanoseconds.
	UnixOffset int64
	// Maps, if not nil, is /proc/PID/maps of the model's process. It is asked for when buffers have come since it
	// was last.
	Maps func() (io.Reader, error)
	// Model, if not nil, reads the header of a model's file that is mapped, so that the weights that no op reads
	// are found as well.
	Model func(path string) (*gguf.File, error)
	// Now reads CLOCK_MONOTONIC. It is needed with Maps.
	Now func() int64
}

// RegionRecorder builds a map, of set-up as well: it touches memory as the run does. It is for one goroutine.
type RegionRecorder struct {
	o      RegionOptions
	m      *memtrace.RegionMap
	plans  map[uint32]*regionPlan // of the newest graph of each context
	filed  map[uint64]bool        // buffers of which the file's tensors were placed
	stale  bool                   // buffers have come since the mappings were looked at
	doubts memtrace.Doubts
	closed bool
}

// NewRegionRecorder makes a recorder of nothing yet.
func NewRegionRecorder(o RegionOptions) *RegionRecorder {
	return &RegionRecorder{o: o, m: memtrace.NewRegionMap(), plans: map[uint32]*regionPlan{}, filed: map[uint64]bool{}}
}

// Map is the map as it is now. It is for the goroutine that the recorder is for.
func (r *RegionRecorder) Map() *memtrace.RegionMap { return r.m }

// Doubts count what did not fit.
func (r *RegionRecorder) Doubts() memtrace.Doubts { return r.doubts }

// Buffer takes a buffer in.
func (r *RegionRecorder) Buffer(b *ggmlhooks.Buffer) error {
	if b.Size == 0 {
		return nil
	}
	err := r.m.AddBuffer(memtrace.Buffer{
		ID: b.ID, Base: b.Base, Size: b.Size, Host: b.Host, Mapped: b.Mapped, Usage: memtrace.Usage(b.Usage),
		Type: b.Type, Device: b.Device, From: b.MonoNS,
		File: b.File, FileOffset: b.FileOffset,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ggmlhooks.ErrDesync, err)
	}
	if known := r.m.Buffer(b.ID); known.File != "" {
		r.weights(known)
	}
	r.stale = r.stale || !b.Known
	return nil
}

// BufferEnd ends a buffer's life.
func (r *RegionRecorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.m.FreeBuffer(e.ID, e.MonoNS)
	return nil
}

// readMappings reads the process's mappings. Those of a process that has ended stay.
func (r *RegionRecorder) readMappings() {
	r.stale = false
	if r.o.Maps == nil {
		return
	}
	text, err := r.o.Maps()
	if err != nil {
		return
	}
	if mappings, err := memtrace.ParseMaps(text); err == nil && len(mappings) > 0 {
		r.m.SetMappings(r.o.Now(), mappings)
	}
}

// weights places the tensors of a mapped file in its buffer. Those that are there already stay.
func (r *RegionRecorder) weights(b *memtrace.Buffer) {
	if r.o.Model == nil || r.filed[b.ID] {
		return
	}
	r.filed[b.ID] = true
	file, err := r.o.Model(b.File)
	if err != nil {
		return // of another format, or gone
	}
	for i := range file.Tensors {
		t := &file.Tensors[i]
		first, end := uint64(t.Offset), uint64(t.End())
		if t.Bytes == 0 || first < b.FileOffset || end > b.FileOffset+b.Size {
			continue
		}
		r.addTensor(memtrace.Tensor{
			Name: t.Name, Layer: ggmlhooks.WeightLayer(t.Name), DType: t.Type.String(), Shape: t.Shape, Buffer: b.ID,
			Offset: first - b.FileOffset, Bytes: uint64(t.Bytes),
		})
	}
}

// addTensor makes a tensor known. nil: it has no place.
func (r *RegionRecorder) addTensor(t memtrace.Tensor) *memtrace.Region {
	region, err := r.m.Place(t)
	if err != nil {
		r.doubts.Overlaps++
		return nil
	}
	return region
}

// Graph finds the regions of a graph's tensors. Of the one before it, of the same context, nothing new will come.
func (r *RegionRecorder) Graph(g *ggmlhooks.Graph) error {
	if r.stale {
		r.readMappings()
	}
	if old := r.plans[g.Ctx]; old != nil {
		r.m.Layouts.Set(old.graph, nil)
	}
	p := r.plan(g)
	p.graph = g.ID
	r.plans[g.Ctx] = p
	return nil
}

// Begin says nothing that is needed here.
func (r *RegionRecorder) Begin(*ggmlhooks.Execution) error { return nil }

// Resolve says nothing that is needed here.
func (r *RegionRecorder) Resolve(ggmlhooks.Resolve) error { return nil }

// End counts what an execution touched.
func (r *RegionRecorder) End(x *ggmlhooks.Execution) error {
	r.doubts.Executions++
	if x.Failed() {
		r.doubts.Failed++
		return nil
	}
	p := r.plans[x.Ctx]
	r.m.Layouts.Computed(x.Graph.ID, x.BeganNS(), x.End.MonoNS)
	r.doubts.Unplaced += p.unplaced
	for i := range p.touches {
		t := &p.touches[i]
		use := &t.region.Root().Use
		use.Write(t.writes, t.written, computedNS(x, t.firstWrite), computedNS(x, t.lastWrite))
		use.Read(t.reads, t.read, computedNS(x, t.firstRead), computedNS(x, t.lastRead))
	}
	for i := range p.experts {
		n := &p.experts[i]
		use := &n.weights.Root().Use
		n.op.Experts = chosenExperts(x, n.ids)
		if bytes, ok := n.op.Read(n.source); ok {
			use.BytesRead += bytes
		} else {
			use.Unknown++
		}
	}
	return nil
}

// chosenExperts is how many different experts a node chose, 0 where that is not known.
func chosenExperts(x *ggmlhooks.Execution, node int) int64 {
	for i := range x.Routing {
		c := &x.Routing[i]
		if c.Node != node || c.Type != int(gguf.I32) {
			continue
		}
		seen := map[[4]byte]bool{}
		for at := 0; at+4 <= len(c.Data); at += 4 {
			seen[[4]byte(c.Data[at:])] = true
		}
		return int64(len(seen))
	}
	return 0
}

// computedNS is when the measured interval began in which a node was computed.
func computedNS(x *ggmlhooks.Execution, node int32) int64 {
	times := x.Times.Nodes
	i := sort.Search(len(times), func(i int) bool { return times[i].Node >= node })
	if i == 0 {
		return x.BeganNS()
	}
	return x.BeganNS() + max(times[i-1].LeftNS, 0)
}

// Close writes the table. It may be called twice.
func (r *RegionRecorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.o.Out == nil {
		return nil
	}
	return WriteRegions(r.o.Out, r.m, r.doubts, r.o.UnixOffset)
}
