//go:build linux

package collect

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// machineSink writes down what a [ggmlhooks.MachineSink] gets.
type machineSink struct {
	sink
	buffers []ggmlhooks.Buffer
	ends    []ggmlhooks.BufferEnd
	times   []ggmlhooks.Times
	inputs  []ggmlhooks.Input
	samples []ggmlhooks.Sample
	syncs   []ggmlhooks.Sync
	served  []ggmlhooks.Served
	moved   []ggmlhooks.Moved
}

func (s *machineSink) Moved(m *ggmlhooks.Moved) error {
	s.moved = append(s.moved, *m)
	return nil
}

func (s *machineSink) Served(e *ggmlhooks.Served) error {
	s.served = append(s.served, *e)
	return nil
}

func (s *machineSink) Sync(e ggmlhooks.Sync) error {
	s.syncs = append(s.syncs, e)
	return nil
}

func (s *machineSink) Buffer(b *ggmlhooks.Buffer) error {
	s.buffers = append(s.buffers, *b)
	return nil
}

func (s *machineSink) BufferEnd(e ggmlhooks.BufferEnd) error {
	s.ends = append(s.ends, e)
	return nil
}

func (s *machineSink) Times(t *ggmlhooks.Times) error {
	c := *t
	c.Nodes = slices.Clone(t.Nodes)
	s.times = append(s.times, c)
	return nil
}

func (s *machineSink) Input(in *ggmlhooks.Input) error {
	c := *in
	c.Values, c.Ranges = slices.Clone(in.Values), slices.Clone(in.Ranges)
	s.inputs = append(s.inputs, c)
	return nil
}

func (s *machineSink) Sample(c *ggmlhooks.Sample) error {
	n := *c
	n.Top = slices.Clone(c.Top)
	s.samples = append(s.samples, n)
	return nil
}

// putGraph announces graph 9 with two nodes and a leaf.
func putGraph(p *producer) {
	p.put(recGraph, rec{}.u64(9).u32(3, 2, 1, 1).i32(4, -1).u32(6, 1).u64(0).u32(0, 0))
	p.put(recNodes, append(rec{}.u64(9).u32(0, 2),
		append(node("ffn_up-0", "MUL_MAT", 0, -1), node("l_out-0", "ADD", 0, 0, -1)...)...))
	p.put(recLeafs, append(rec{}.u64(9).u32(0, 1), leaf("self_k_idxs", 1)...))
}

func timeOf(node, held uint32, done uint64) rec { return rec{}.u32(node, held).u64(done) }

func TestReaderReadsWhatTheMachineDid(t *testing.T) {
	region := newTestRegion(t, Options{})
	p, s := newProducer(region.mem), &machineSink{}
	p.put(recBuffer, rec{}.u64(4, 10, 0x7000, 4096).u32(1, bufferHost|bufferMapped).u64(512).u16(10, 3, 4, 0).
		text("CPU_Mapped", "CPU", "/m/x"))
	p.put(recBuffer, rec{}.u64(5, 11, 0x9000, 64).u32(0, bufferKnown).u64(0).u16(0, 0, 0, 0))
	putGraph(p)
	p.put(recInput, append(rec{}.u64(21, 9).u32(0, 0, 2, 1), rec{}.u64(7, 8)...))
	p.put(recInput, append(rec{}.u64(21, 9).u32(0, 0, 1, 0), rec{}.u64(^uint64(0))...))
	p.put(recInput, append(rec{}.u64(21, 9).u32(0, 1, 2, 0), rec{}.i32(0, 0, 3, 1, 2, 5)...))
	p.put(recTimes, append(rec{}.u64(21, 9, 1000).u32(0, 1, 2, 0), timeOf(0, 5, 40)...))
	p.put(recTimes, append(rec{}.u64(21, 9, 1000).u32(1, 1, 2, 0), timeOf(1, 0, 90)...))
	p.put(recTimes, append(rec{}.u64(22, 9, 2000).u32(1, 1, 2, 0), timeOf(1, 0, 90)...)) // its first part was lost
	p.put(recSample, rec{}.u64(77).u32(3).i32(42).u64(500, 40).u32(1, 0).i32(42).u32(0x3f800000, 0x3f000000))
	p.put(recServed, rec{}.u64(90, 80, 3, 1<<40).u32(3, 2).i32(5, -1).u32(1, 9).text("slot id 1"))
	p.put(recMoved, rec{}.u64(60, 75, 5, 96, 4096, 7).u32(1, 3, 8, 0).text("l_out-3#"))
	p.put(recMoved, rec{}.u64(80, 81, 5, 0, 16, 8).u32(0, 0, 0, 0))
	p.put(recBufferEnd, rec{}.u64(4, 99))
	drain(t, NewReader(region, s))

	if want := []ggmlhooks.Buffer{
		{ID: 4, MonoNS: 10, Base: 0x7000, Size: 4096, Usage: ggmlhooks.BufferWeights, Host: true, Mapped: true,
			Type: "CPU_Mapped", Device: "CPU", File: "/m/x", FileOffset: 512},
		{ID: 5, MonoNS: 11, Base: 0x9000, Size: 64, Known: true},
	}; !reflect.DeepEqual(s.buffers, want) {
		t.Errorf("buffers: %+v", s.buffers)
	}
	if want := []ggmlhooks.BufferEnd{{ID: 4, MonoNS: 99}}; !reflect.DeepEqual(s.ends, want) {
		t.Errorf("ends of buffers: %+v", s.ends)
	}
	if want := []ggmlhooks.Times{{Exec: 21, Graph: 9, BeginNS: 1000,
		Nodes: []ggmlhooks.NodeTime{{Node: 0, DoneNS: 40, LeftNS: 45},
			{Node: 1, DoneNS: 90, LeftNS: 90}}}}; !reflect.DeepEqual(s.times, want) {
		t.Errorf("times: %+v", s.times)
	}
	if want := []ggmlhooks.Input{
		{Exec: 21, Graph: 9, Kind: ggmlhooks.InputCells, Values: []int64{7, 8, -1}},
		{Exec: 21, Graph: 9, Kind: ggmlhooks.InputMask,
			Ranges: []ggmlhooks.CellRange{{Row: 0, First: 0, End: 3}, {Row: 1, First: 2, End: 5}}},
	}; len(s.inputs) != 2 || !slices.Equal(s.inputs[0].Values, want[0].Values) ||
		!slices.Equal(s.inputs[1].Ranges, want[1].Ranges) || s.inputs[1].Kind != want[1].Kind ||
		len(s.inputs[1].Values) != 0 {
		t.Errorf("inputs: %+v", s.inputs)
	}
	if want := []ggmlhooks.Sample{{Ctx: 3, MonoNS: 77, Token: 42, InSize: 500, OutSize: 40,
		Top: []ggmlhooks.Candidate{{Token: 42, Logit: 1, P: 0.5}}}}; !reflect.DeepEqual(s.samples, want) {
		t.Errorf("samples: %+v", s.samples)
	}
	if want := []ggmlhooks.Served{{Kind: ggmlhooks.ServedLine, Ctx: 2, MonoNS: 90, BegunNS: 80, GrammarNS: 3,
		Key: 1 << 40, Row: 5, Token: -1, Value: 1, Line: "slot id 1"}}; !reflect.DeepEqual(s.served, want) {
		t.Errorf("served: %+v", s.served)
	}
	if want := []ggmlhooks.Moved{{Tensor: "l_out-3#", Buffer: 5, Offset: 96, Bytes: 4096, Addr: 7, BegunNS: 60,
		MonoNS: 75, Get: true, Async: true, Own: true},
		{Buffer: 5, Bytes: 16, Addr: 8, BegunNS: 80, MonoNS: 81}}; !reflect.DeepEqual(s.moved, want) {
		t.Errorf("moved: %+v", s.moved)
	}
}

func TestReaderRefusesDamagedMachineRecords(t *testing.T) {
	for name, put := range map[string]func(p *producer){
		"a time of a node that is not there": func(p *producer) {
			p.put(recTimes, append(rec{}.u64(21, 9, 1000).u32(0, 1, 1, 0), timeOf(2, 0, 1)...))
		},
		"fewer times than stated": func(p *producer) { p.put(recTimes, rec{}.u64(21, 9, 1000).u32(0, 900, 900, 0)) },
		"an input beyond the last": func(
			p *producer) {
			p.put(recInput, append(rec{}.u64(21, 9).u32(1, 0, 1, 0), rec{}.u64(1)...))
		},
		"an unknown kind of input": func(
			p *producer) {
			p.put(recInput, append(rec{}.u64(21, 9).u32(0, 3, 1, 0), rec{}.u64(1)...))
		},
		"fewer ranges than stated": func(p *producer) { p.put(recInput, rec{}.u64(21, 9).u32(0, 1, 1<<31, 0)) },
		"too many candidates": func(
			p *producer) {
			p.put(recSample, rec{}.u64(77).u32(3).i32(42).u64(500, 40).u32(11, 0))
		},
	} {
		region := newTestRegion(t, Options{})
		p := newProducer(region.mem)
		putGraph(p)
		put(p)
		if _, err := NewReader(region, &machineSink{}).Drain(); !errors.Is(err, ErrQueue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReaderReadsSynchronisations: what a device was done with, and what is too short.
func TestReaderReadsSynchronisations(t *testing.T) {
	region := newTestRegion(t, Options{})
	p, s := newProducer(region.mem), &machineSink{}
	p.put(recSync, rec{}.u64(21, 5000, 300).u32(2, 0))
	drain(t, NewReader(region, s))
	if want := []ggmlhooks.Sync{{Exec: 21, MonoNS: 5000, WaitNS: 300, Graphs: 2}}; !reflect.DeepEqual(s.syncs, want) {
		t.Errorf("%+v", s.syncs)
	}
	p.put(recSync, make(rec, 16))
	if _, err := NewReader(region, s).Drain(); !errors.Is(err, ErrQueue) {
		t.Error(err)
	}
}
