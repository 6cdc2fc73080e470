package memtrace

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestLayoutIsTheNewest compares a layout with a walk over its tensors, at every offset and after every node.
func TestLayoutIsTheNewest(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := &Layout{}
		nodes := -1
		for i := range 30 {
			if i > 4 {
				nodes = i - 5
			}
			l.Add(&Region{Tensor: fmt.Sprint(i)}, uint64(1+r.IntN(2)), uint64(r.IntN(50)), uint64(r.IntN(20)), nodes)
		}
		for buffer := range uint64(4) {
			for offset := range uint64(80) {
				for node := -1; node < 26; node++ {
					checkLayout(t, l, buffer, offset, node)
				}
			}
		}
	}
}

func checkLayout(t *testing.T, l *Layout, buffer, offset uint64, node int) {
	t.Helper()
	var want, only string
	all := 0
	for _, p := range l.placed {
		if p.buffer == buffer && p.offset <= offset && offset < p.offset+p.bytes {
			all++
			only = p.region.Tensor
			if p.node <= node {
				want = p.region.Tensor
			}
		}
	}
	got := l.At(buffer, offset, node)
	if (got.Region != nil) != (want != "") || want != "" && got.Region.Tensor != want {
		t.Fatalf("offset %d of buffer %d after node %d: %+v, want %q", offset, buffer, node, got.Region, want)
	}
	if got := l.onlyTensorAt(buffer, offset); (got.Region != nil) != (all == 1) || all == 1 &&
		got.Region.Tensor != only {
		t.Fatalf("offset %d of buffer %d: %+v, there are %d", offset, buffer, got.Region, all)
	}
}

// TestActivationsMove: a tensor is one region wherever graphs put it, and an address is its only while its graph is
// computed.
func TestActivationsMove(t *testing.T) {
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Base: 100, Size: 100, Host: true, Usage: UsageCompute, From: 1})
	for graph := range uint64(2) {
		at := 10 * graph
		l := &Layout{}
		for node, name := range []string{"norm-0", "norm-0", "l_out-0"} {
			r := m.Activation(0, "MUL", 1+node, Tensor{Name: name, Layer: 0, Buffer: 1, Offset: at, Bytes: 10})
			l.Add(r, 1, at, 10, node)
			at += 5 // they lie half in one another
		}
		m.Layouts.Set(graph, l)
	}
	m.Layouts.Computed(0, 10, 20)
	m.Layouts.Computed(1, 30, 40)
	m.Layouts.Computed(7, 50, 60) // it was never described
	for _, c := range []struct {
		addr uint64
		ns   int64
		want string
	}{
		{102, 15, "norm-0"}, {107, 15, ""}, {118, 15, "l_out-0"}, {102, 35, ""}, {112, 35, "norm-0"}, {102, 25, ""},
		{102, 20, ""}, {112, 30, "norm-0"}, {102, 55, ""},
	} {
		h := m.Address(c.addr, c.ns)
		if h.Region == nil || h.Region.Tensor != c.want || c.want == "" && h.Type() != ComputeBuffer || c.want != "" &&
			h.Type() != Activation {
			t.Errorf("%+v: %+v", c, h.Region)
		}
	}
	regions := m.Regions()
	if len(regions) != 4 || regions[1].Moves != 1 || regions[1].Offset != 10 || regions[3].Tensor != "l_out-0" {
		t.Errorf("%d regions, %+v", len(regions), regions[1])
	}
	for i := range int64(3 * maxComputed) {
		m.Layouts.Computed(0, 100+2*i, 101+2*i)
	}
	if n := len(m.Layouts.computed); n > maxComputed || m.Address(102, 100+6*maxComputed-2).Region.Tensor != "norm-0" {
		t.Errorf("%d executions are kept", n)
	}
	m.Layouts.Set(1, nil)
	if m.Layouts.Of(1) != nil || m.Layouts.Of(0) == nil {
		t.Error("a layout is not forgotten")
	}
}
