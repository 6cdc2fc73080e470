package regions

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
)

// Hot path: per execution one pass over the regions that its graph touches, and no allocation in steady state.

// Options says how a Recorder works.
type Options struct {
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

// ErrDesync occurs when the tap reports something of a graph that it did not announce.
var ErrDesync = errors.New("the tap's reports do not fit together")

// Recorder is a ggmlhooks.Sink that builds a map. It is for one goroutine.
type Recorder struct {
	ggmlhooks.NoMachine
	o      Options
	m      *memtrace.RegionMap
	plans  map[uint64]*plan
	newest map[uint32]uint64 // newest graph of each context
	open   map[uint64]*execution
	free   []*execution
	filed  map[uint64]bool // buffers of which the file's tensors were placed
	stale  bool            // buffers have come since the mappings were looked at
	doubts memtrace.Doubts
	closed bool
}

// execution is one micro-batch, until it has ended.
type execution struct {
	plan    *plan
	graph   uint64
	ns      int64 // graph entry
	begin   int64 // when ggml was given the graph; 0 = not told
	times   []ggmlhooks.NodeTime
	experts map[int]int64 // how many different ones were chosen, by the node that tells
}

// NewRecorder makes a recorder of nothing yet.
func NewRecorder(o Options) *Recorder {
	return &Recorder{o: o, m: memtrace.NewRegionMap(), plans: map[uint64]*plan{}, newest: map[uint32]uint64{}, open: map[uint64]*execution{}, filed: map[uint64]bool{}}
}

// Map is the map as it is now. It is for the goroutine that the recorder is for.
func (r *Recorder) Map() *memtrace.RegionMap { return r.m }

// Doubts count what did not fit.
func (r *Recorder) Doubts() memtrace.Doubts { return r.doubts }

// Buffer takes a buffer in.
func (r *Recorder) Buffer(b *ggmlhooks.Buffer) error {
	if b.Size == 0 {
		return nil
	}
	err := r.m.AddBuffer(memtrace.Buffer{
		ID: b.ID, Base: b.Base, Size: b.Size, Host: b.Host, Mapped: b.Mapped, Usage: memtrace.Usage(b.Usage), Type: b.Type, Device: b.Device, From: b.MonoNS,
		File: b.File, FileOffset: b.FileOffset,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDesync, err)
	}
	if known := r.m.Buffer(b.ID); known.File != "" {
		r.weights(known)
	}
	r.stale = r.stale || !b.Known
	return nil
}

// BufferEnd ends a buffer's life.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.m.FreeBuffer(e.ID, e.MonoNS)
	return nil
}

// look looks at what the process has mapped. Of one that has ended nothing is known, and what was known stays.
func (r *Recorder) look() {
	r.stale = false
	if r.o.Maps == nil {
		return
	}
	text, err := r.o.Maps()
	if err != nil {
		return
	}
	if all, err := memtrace.ParseMaps(text); err == nil && len(all) > 0 {
		r.m.SetMappings(r.o.Now(), all)
	}
}

// weights places the tensors of a mapped file in its buffer. Those that are there already stay.
func (r *Recorder) weights(b *memtrace.Buffer) {
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
		r.place(memtrace.Tensor{
			Name: t.Name, Layer: ggmlhooks.WeightLayer(t.Name), DType: t.Type.String(), Shape: t.Shape, Buffer: b.ID, Offset: first - b.FileOffset, Bytes: uint64(t.Bytes),
		})
	}
}

// place makes a tensor known. nil: it has no place.
func (r *Recorder) place(t memtrace.Tensor) *memtrace.Region {
	region, err := r.m.Place(t)
	if err != nil {
		r.doubts.Overlaps++
		return nil
	}
	return region
}

// Context says nothing that is needed here.
func (r *Recorder) Context(*ggmlhooks.Context) error { return nil }

// Call says nothing that is needed here.
func (r *Recorder) Call(*ggmlhooks.Call) error { return nil }

// CallEnd says nothing that is needed here.
func (r *Recorder) CallEnd(ggmlhooks.CallEnd) error { return nil }

// SeqChange says nothing that is needed here: what is moved in memory is a graph.
func (r *Recorder) SeqChange(*ggmlhooks.SeqChange) error { return nil }

// Resolve says nothing that is needed here: set-up touches memory as the run does.
func (r *Recorder) Resolve(ggmlhooks.Resolve) error { return nil }

// Graph finds the regions of a graph's tensors. Of the one before it, of the same context, nothing new will come.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	if r.stale {
		r.look()
	}
	if old, ok := r.newest[g.Ctx]; ok {
		delete(r.plans, old)
		r.m.SetLayout(old, nil)
	}
	r.newest[g.Ctx] = g.ID
	r.plans[g.ID] = r.plan(g)
	return nil
}

// Exec begins a micro-batch.
func (r *Recorder) Exec(e *ggmlhooks.Exec) error {
	p := r.plans[e.Graph]
	if p == nil {
		return fmt.Errorf("%w: execution %d of graph %d, which was not described", ErrDesync, e.Number, e.Graph)
	}
	var x *execution
	if n := len(r.free); n > 0 {
		x, r.free = r.free[n-1], r.free[:n-1]
		clear(x.experts)
	} else {
		x = &execution{}
	}
	*x = execution{plan: p, graph: e.Graph, ns: e.MonoNS, times: x.times[:0], experts: x.experts}
	r.open[e.Number] = x
	return nil
}

// Times notes when the nodes of an execution were computed.
func (r *Recorder) Times(t *ggmlhooks.Times) error {
	if x := r.open[t.Exec]; x != nil {
		x.begin, x.times = t.BeginNS, append(x.times[:0], t.Nodes...)
	}
	return nil
}

// Capture counts the experts that were chosen, where a tensor tells, and releases it.
func (r *Recorder) Capture(c *ggmlhooks.Capture) error {
	defer c.Release()
	x := r.open[c.Exec]
	if x == nil || c.For&ggmlhooks.ForRouting == 0 || c.Blocks > 1 || c.Node < 0 || c.Type != int(gguf.I32) {
		return nil
	}
	seen := map[[4]byte]bool{}
	for i := 0; i+4 <= len(c.Data); i += 4 {
		seen[[4]byte(c.Data[i:])] = true
	}
	if x.experts == nil {
		x.experts = map[int]int64{}
	}
	x.experts[c.Node] = int64(len(seen))
	return nil
}

// ExecEnd counts what an execution touched.
func (r *Recorder) ExecEnd(e ggmlhooks.ExecEnd) error {
	x := r.open[e.Number]
	if x == nil {
		return nil // its beginning was dropped, and counted
	}
	delete(r.open, e.Number)
	r.free = append(r.free, x)
	r.doubts.Executions++
	if e.Status != 0 {
		r.doubts.Failed++
		return nil
	}
	if x.begin == 0 {
		x.begin = e.BeginNS
	}
	if x.begin == 0 {
		x.begin = x.ns
	}
	r.m.Computed(x.graph, x.begin, e.MonoNS)
	r.doubts.Unplaced += x.plan.unplaced
	for i := range x.plan.touches {
		t := &x.plan.touches[i]
		use := &t.region.Root().Use
		use.Write(t.writes, t.written, x.at(t.firstWrite), x.at(t.lastWrite))
		use.Read(t.reads, t.read, x.at(t.firstRead), x.at(t.lastRead))
	}
	for i := range x.plan.experts {
		n := &x.plan.experts[i]
		use := &n.weights.Root().Use
		n.op.Experts = x.experts[n.ids]
		if bytes, ok := n.op.Read(0); ok {
			use.BytesRead += bytes
		} else {
			use.Unknown++
		}
	}
	return nil
}

// at is when the measured interval began in which a node was computed.
func (x *execution) at(node int32) int64 {
	i := sort.Search(len(x.times), func(i int) bool { return x.times[i].Node >= node })
	if i == 0 {
		return x.begin
	}
	return x.begin + max(x.times[i-1].LeftNS, 0)
}

// Close writes the table. It may be called twice.
func (r *Recorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.o.Out == nil {
		return nil
	}
	return WriteTable(r.o.Out, r.m, r.doubts, r.o.UnixOffset)
}
