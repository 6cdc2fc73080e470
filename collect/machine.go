//go:build linux

package collect

import (
	"fmt"
	"math"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Hot path: one decode per record, no allocation in steady state.

// machineReports reads the records of times, inputs and samples.
type machineReports struct {
	sink   ggmlhooks.Sink
	graphs *graphs
	times  ggmlhooks.Times
	input  ggmlhooks.Input
	sample ggmlhooks.Sample
	part   bool // the input that is being read has more records to come
}

// Bits of a buffer's flags.
const (
	bufferHost = 1 << iota
	bufferMapped
	bufferKnown
)

// Kind and flags of what was moved.
const (
	movedGet   = 1
	movedCopy  = 2
	movedAsync = 1 << 0
	movedOwn   = 1 << 1
)

func readBuffer(d *decoder, sink ggmlhooks.Sink) error {
	b := ggmlhooks.Buffer{ID: d.u64(), MonoNS: int64(d.u64()), Base: d.u64(), Size: d.u64()}
	b.Usage = ggmlhooks.BufferUsage(d.u32())
	flags := d.u32()
	b.Host, b.Mapped, b.Known = flags&bufferHost != 0, flags&bufferMapped != 0, flags&bufferKnown != 0
	b.FileOffset = d.u64()
	kind, device, file := int(d.u16()), int(d.u16()), int(d.u16())
	d.u16()
	b.Type, b.Device, b.File = d.text(kind), d.text(device), d.text(file)
	return d.then(recBuffer, func() error { return sink.Buffer(&b) })
}

// readTimes joins the records of an execution and reports them when the last is there. Of an execution of which one
// was lost nothing is.
func (m *machineReports) readTimes(d *decoder) error {
	t := &m.times
	exec, graph, begin := d.u64(), d.u64(), int64(d.u64())
	first, count, total := int(d.u32()), int(d.u32()), int(d.u32())
	d.u32()
	if first == 0 {
		*t = ggmlhooks.Times{Exec: exec, Graph: graph, BeginNS: begin, Nodes: t.Nodes[:0]}
	}
	if t.Exec != exec || len(t.Nodes) != first {
		t.Exec = 0
		return nil
	}
	if !d.has(count * 16) {
		return d.err(recTimes)
	}
	g := m.graphs.known[graph]
	for range count {
		node, held, done := int32(d.u32()), int64(d.u32()), int64(d.u64())
		if node < 0 || g != nil && int(node) >= len(g.Nodes) {
			return fmt.Errorf("%w: a time of node %d of graph %d", ErrQueue, node, graph)
		}
		t.Nodes = append(t.Nodes, ggmlhooks.NodeTime{Node: node, DoneNS: done, LeftNS: done + held})
	}
	if len(t.Nodes) < total || g == nil {
		return nil
	}
	return m.sink.Times(t)
}

// readInput joins the records of an input, as readTimes does.
func (m *machineReports) readInput(d *decoder) error {
	in := &m.input
	exec, graph := d.u64(), d.u64()
	leaf, kind, count, more := int(d.u32()), ggmlhooks.InputKind(d.u32()), int(d.u32()), d.u32() != 0
	if !m.part || in.Exec != exec || in.Leaf != leaf {
		*in = ggmlhooks.Input{
			Exec: exec, Graph: graph, Leaf: leaf, Kind: kind, Values: in.Values[:0], Ranges: in.Ranges[:0],
		}
	}
	m.part = more
	g := m.graphs.known[graph]
	if kind > ggmlhooks.InputStates || g != nil && leaf >= len(g.Leafs) {
		return fmt.Errorf("%w: an input of kind %d, leaf %d of graph %d", ErrQueue, kind, leaf, graph)
	}
	width := 8
	if kind == ggmlhooks.InputMask {
		width = 12
	}
	if count < 0 || count > math.MaxInt32/width || !d.has(count*width) {
		d.bad = true
		return d.err(recInput)
	}
	for range count {
		if kind == ggmlhooks.InputMask {
			in.Ranges = append(in.Ranges, ggmlhooks.CellRange{Row: d.i32(), First: d.i32(), End: d.i32()})
		} else {
			in.Values = append(in.Values, int64(d.u64()))
		}
	}
	if more || g == nil {
		return nil
	}
	return m.sink.Input(in)
}

func (m *machineReports) readSample(d *decoder) error {
	s := &m.sample
	*s = ggmlhooks.Sample{
		MonoNS: int64(d.u64()), Ctx: d.u32(), Token: d.i32(), InSize: int(d.u64()), OutSize: int(d.u64()),
		Top: s.Top[:0],
	}
	count := int(d.u32())
	d.u32()
	if count > ggmlhooks.MaxCandidates || !d.has(count*12) {
		d.bad = true
		return d.err(recSample)
	}
	for range count {
		c := ggmlhooks.Candidate{Token: d.i32(), Logit: math.Float32frombits(d.u32())}
		c.P = math.Float32frombits(d.u32())
		s.Top = append(s.Top, c)
	}
	return m.sink.Sample(s)
}
