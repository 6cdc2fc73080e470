//go:build linux

package collect

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// sink writes down what it is handed. Captures are copied, and released where release says so.
type sink struct {
	ggmlhooks.NoMachine
	said     []string
	graphs   []*ggmlhooks.Graph
	calls    []ggmlhooks.Call
	execs    []ggmlhooks.Exec
	ends     []ggmlhooks.ExecEnd
	contexts []ggmlhooks.Context
	data     [][]byte
	keep     []func()
	hold     bool
	fail     error
}

func (s *sink) say(format string, args ...any) error {
	s.said = append(s.said, fmt.Sprintf(format, args...))
	return s.fail
}

func (s *sink) Context(c *ggmlhooks.Context) error {
	s.contexts = append(s.contexts, *c)
	return s.say("context %d", c.Number)
}

func (s *sink) Graph(g *ggmlhooks.Graph) error {
	s.graphs = append(s.graphs, g)
	return s.say("graph %d", g.ID)
}

func (s *sink) Call(c *ggmlhooks.Call) error {
	call := *c
	call.Rows = append([]ggmlhooks.CallRow(nil), c.Rows...)
	s.calls = append(s.calls, call)
	return s.say("call %d of %d rows", c.Number, len(c.Rows))
}

func (s *sink) Exec(e *ggmlhooks.Exec) error {
	exec := *e
	exec.Tokens, exec.Pos, exec.Outputs = append([]int32(nil), e.Tokens...), append([]int32(nil), e.Pos...),
		append([]int32(nil), e.Outputs...)
	s.execs = append(s.execs, exec)
	return s.say("exec %d", e.Number)
}

func (s *sink) Capture(c *ggmlhooks.Capture) error {
	s.data = append(s.data, bytes.Clone(c.Data))
	if s.hold {
		s.keep = append(s.keep, c.Release)
	} else {
		c.Release()
	}
	return s.say("capture of node %d in exec %d", c.Node, c.Exec)
}

func (s *sink) ExecEnd(e ggmlhooks.ExecEnd) error {
	s.ends = append(s.ends, e)
	return s.say("exec %d ends: %d", e.Number, e.Status)
}
func (s *sink) Resolve(r ggmlhooks.Resolve) error {
	return s.say("resolve %d to %d: %v", r.Ctx, r.Exec, r.Discarded)
}

func (s *sink) SeqChange(c *ggmlhooks.SeqChange) error { return s.say("change %+v", *c) }

func drain(t *testing.T, r *Reader) int {
	t.Helper()
	n, err := r.Drain()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReaderReadsEveryRecord(t *testing.T) {
	region := newTestRegion(t, Options{})
	p, s := newProducer(region.mem), &sink{}
	p.put(recHello, rec{}.i32(1234).u32(0).u64(11, 12))
	strings := rec{}.u16(4, 9, 2, 0).text("desc", "/m/x.gguf", "ll")
	p.put(recContext, append(rec{}.u32(3).i32(1).u64(1000, 500, 77).u32(512, 256, 128, 4).
		i32(2, 64, 8, 4, 320, 7, 2, 1, 2048, 0), strings...))
	p.put(recGraph, rec{}.u64(9).u32(3, 2, 1, 1).i32(4, -1).u32(6, 1).u64(0).u32(0, 0))
	p.put(recNodes, append(rec{}.u64(9).u32(0, 2),
		append(node("ffn_up-0", "MUL_MAT", 0, -1), node("l_out-0", "ADD", 0, 0, -1)...)...))
	p.put(recLeafs, append(rec{}.u64(9).u32(0, 1), leaf("blk.0.ffn_up.weight", 0)...))
	p.put(recCall, rec{}.u64(5, 13).u32(3, 0, 3, 3, 0, 2, 1, 0).i32(7, 0, 0).u16(1, 0).i32(8, 1, 0).u16(2, 0).i32(6))
	p.put(recCall, rec{}.u64(5, 13).u32(3, 0, 3, 3, 2, 1, 0, 0).i32(9, 2, 1).u16(1, 1))
	p.put(recExec, rec{}.u64(21, 9, 5, 14, 100).u32(3, 1, 1, 1, 3, 3, 1, 17, 4, 0).i32(7, 8, 9, 0, 1, 2, 2))
	p.capture(21, 1, 5000, func(b []byte) {
		for i := range b {
			b[i] = byte(i * 7)
		}
	})
	p.put(recLosses, rec{}.u64(21, 3, 48).u64(make([]uint64, 14)...))
	p.put(recExecEnd, rec{}.u64(21, 15).i32(0).u32(1).u64(14, 5, 80, 7, 9, 6, 4, 900))
	p.put(recCallEnd, rec{}.u64(5, 16).i32(-3).u32(3))
	p.put(recResolve, rec{}.u32(3, 1).u64(21))
	p.put(recSeq, rec{}.u64(19).u32(3, 1).i32(4, 5, 6, -1, 7).u32(0))
	p.put(recGoodbye, rec{}.i32(1234).u32(0).u64(17, 18))

	r := NewReader(region, s)
	if n := drain(t, r); n != 15 {
		t.Errorf("%d records were read, 15 written", n)
	}
	want := []string{"context 3", "graph 9", "call 5 of 3 rows", "exec 21", "capture of node 1 in exec 21",
		"exec 21 ends: 0", "resolve 3 to 21: true",
		"change {Ctx:3 MonoNS:19 Kind:1 Seq:4 To:5 First:6 End:-1 Value:7 Rejected:0}"}
	if !reflect.DeepEqual(s.said, want) {
		t.Errorf("the sink got\n%q, not\n%q", s.said, want)
	}
	if !reflect.DeepEqual(r.Hellos, []Hello{{1234, 11, 12, false}, {1234, 17, 18, true}}) {
		t.Errorf("hellos: %+v", r.Hellos)
	}
	if e := s.ends[0]; !e.Async || e.BeginNS != 14 || e.Selected != (ggmlhooks.Count{Packets: 5, Bytes: 80}) ||
		e.OwnNS != 7 || e.WaitNS != 9 || e.WaitBeforeNS != 6 ||
		!reflect.DeepEqual(e.Losses, []ggmlhooks.Loss{{Cause: "pool_full",
			Count: ggmlhooks.Count{Packets: 3, Bytes: 48}}}) {
		t.Errorf("end of an execution: %+v", e)
	}
	if c := s.contexts[0]; c.Desc != "desc" || c.Path != "/m/x.gguf" || c.Arch != "ll" || c.Name != "" ||
		c.NLayer != 2 || c.NVocab != 320 || !c.Hybrid || c.Recurrent || c.FlashAttn != 1 || c.NCtxTrain != 2048 {
		t.Errorf("context: %+v", c)
	}
	g := s.graphs[0]
	if len(g.Nodes) != 2 || len(g.Leafs) != 1 || g.Tokens != 4 || g.Outputs != -1 || g.Selection != 6 ||
		g.Attention != ggmlhooks.AttentionKeep || g.Leafs[0].Name != "blk.0.ffn_up.weight" {
		t.Errorf("graph: %+v", g)
	}
	if n := g.Nodes[1]; n.Name != "l_out-0" || n.Op != "ADD" || !n.Wanted || !n.Computed || n.View ||
		!reflect.DeepEqual(n.Src, []int32{0, -1}) || n.NE != [4]int64{32, 4, 1, 1} || n.Alias != -1 ||
		n.Place != (ggmlhooks.Place{Buffer: 3, Offset: 256}) || n.Slots != 3 ||
		g.Leafs[0].Place != (ggmlhooks.Place{Buffer: 4, Offset: 512}) {
		t.Errorf("node: %+v", n)
	}
	rows := []ggmlhooks.CallRow{{Token: 7, Pos: 0, Seqs: []int32{0}}, {Token: 8, Pos: 1, Seqs: []int32{0, 6}},
		{Token: 9, Pos: 2, Seqs: []int32{1}, Output: true}}
	if c := s.calls[0]; !reflect.DeepEqual(c.Rows, rows) || !c.Read || !c.Accepts {
		t.Errorf("call: %+v", c)
	}
	e := s.execs[0]
	if e.Left != 17 {
		t.Errorf("%d tokens left of a window, not 17", e.Left)
	}
	if !reflect.DeepEqual(e.Tokens, []int32{7, 8, 9}) || !reflect.DeepEqual(e.Pos, []int32{0, 1, 2}) ||
		!reflect.DeepEqual(e.Outputs, []int32{2}) || e.TokenFirst != 100 || !e.Captured {
		t.Errorf("exec: %+v", e)
	}
	for i, b := range s.data[0] {
		if b != byte(i*7) {
			t.Fatalf("byte %d of the captured tensor is %d", i, b)
		}
	}
	if p.takeBack() != 1 || p.used[0] || p.used[1] {
		t.Error("the slots were not given back")
	}
}

// TestReaderChanges reads a graph that is described by what differs from the one before it.
func TestReaderChanges(t *testing.T) {
	region := newTestRegion(t, Options{})
	p, s := newProducer(region.mem), &sink{}
	p.put(recGraph, rec{}.u64(9).u32(3, 2, 1, 1).i32(4, -1).u32(6, 1).u64(0).u32(0, 0))
	p.put(recNodes, append(rec{}.u64(9).u32(0, 2),
		append(node("ffn_up-0", "MUL_MAT", 0, -1), node("l_out-0", "ADD", 0, 0, -1)...)...))
	p.put(recLeafs, append(rec{}.u64(9).u32(0, 1), leaf("blk.0.ffn_up.weight", 0)...))
	p.put(recGraph, rec{}.u64(10).u32(3, 2, 1, 0).i32(1, 1).u32(6, 1).u64(9).u32(3, 0))
	shape := rec{}.u64(8, 1, 1, 1).u64(2, 16, 16, 16)
	moved := entry(rec{}.i32(0).u8(changePlace, uint8(ggmlhooks.RowsOutputs), 2, 0, 0, 0, 0, 0).u64(5, 64))
	grown := entry(append(rec{}.i32(-1).u8(changeShape, 0, 0, 0, 0, 0, 0, 0), shape...))
	p.put(recChanges, append(rec{}.u64(10).u32(0, 2), append(moved, grown...)...))
	both := append(rec{}.i32(1).u8(changePlace|changeShape, uint8(ggmlhooks.RowsTokens), 1, 0, 0, 0, 0, 0).
		u64(6, 128), shape...)
	p.put(recChanges, append(rec{}.u64(10).u32(0, 1), entry(both.i32(11, 12, 13, 14, 15, 16, 17, 18))...))
	p.put(recGraph, rec{}.u64(11).u32(3, 2, 1, 0).i32(1, 1).u32(6, 1).u64(10).u32(0, 0))
	drain(t, NewReader(region, s))
	if len(s.graphs) != 3 {
		t.Fatalf("%d graphs", len(s.graphs))
	}
	first, second, third := s.graphs[0], s.graphs[1], s.graphs[2]
	if n := first.Nodes[0]; n.Place != (ggmlhooks.Place{Buffer: 3, Offset: 256}) || n.RowDim != 1 ||
		first.Leafs[0].NE[0] != 32 {
		t.Errorf("the first graph has changed with the second: %+v", first)
	}
	want := *first
	want.ID, want.Tokens, want.Outputs, want.Wanted = 10, 1, 1, 0
	want.Nodes, want.Leafs = slices.Clone(first.Nodes), slices.Clone(first.Leafs)
	want.Nodes[0].Place, want.Nodes[0].Rows, want.Nodes[0].RowDim = ggmlhooks.Place{Buffer: 5, Offset: 64},
		ggmlhooks.RowsOutputs, 2
	ne, nb := [4]int64{8, 1, 1, 1}, [4]uint64{2, 16, 16, 16}
	want.Leafs[0].NE, want.Leafs[0].NB = ne, nb
	last := &want.Nodes[1]
	last.Place, last.NE, last.NB, last.OpParams = ggmlhooks.Place{Buffer: 6, Offset: 128}, ne, nb,
		[8]int32{11, 12, 13, 14, 15, 16, 17, 18}
	if !reflect.DeepEqual(*second, want) {
		t.Errorf("the second graph is\n%+v, not\n%+v", *second, want)
	}
	if want.ID = 11; !reflect.DeepEqual(*third, want) {
		t.Errorf("the third graph, which is like the second, is\n%+v", *third)
	}
}

// A chunk of a long call that was dropped must not be joined to the rows of another call.
func TestReaderLosesCallsWhole(t *testing.T) {
	region := newTestRegion(t, Options{})
	p, s := newProducer(region.mem), &sink{}
	row := func(token int32) rec { return rec{}.i32(token, 0, 0).u16(1, 0) }
	call := func(number uint64, total, first uint32, rows ...rec) {
		body := rec{}.u64(number, 0).u32(0, 0, 0, total, first, uint32(len(rows)), 0, 0)
		for _, r := range rows {
			body = append(body, r...)
		}
		p.put(recCall, body)
	}
	call(1, 2, 0, row(1), row(2))
	call(2, 3, 2, row(5)) // the first two rows were dropped
	call(3, 3, 0, row(6))
	call(3, 3, 2, row(8)) // the row between was dropped
	call(4, 1, 0, row(9))
	drain(t, NewReader(region, s))
	if want := []string{"call 1 of 2 rows", "call 4 of 1 rows"}; !reflect.DeepEqual(s.said, want) {
		t.Errorf("the sink got %q, not %q", s.said, want)
	}
}

func TestReaderWrapsAndReturns(t *testing.T) {
	region := newTestRegion(t, Options{})
	p, s := newProducer(region.mem), &sink{hold: true}
	r := NewReader(region, s)
	rng := rand.New(rand.NewPCG(1, 2))
	sent, full := 0, 0
	for len(s.data) < 8000 { // more than once around the queue
		size := 1 + rng.IntN(5*SlotBytes)
		number := byte(sent)
		if p.put(recExecEnd, make(rec, 88)) && p.capture(uint64(sent), 0, size, func(b []byte) {
			for i := range b {
				b[i] = number + byte(i)
			}
		}) {
			sent++
		} else {
			full++
		}
		if rng.IntN(4) == 0 {
			drain(t, r)
		}
		// of about three slots each: now and then none is free
		for len(s.keep) > int(p.h.NSlots)/4+rng.IntN(int(p.h.NSlots)/8) {
			i := rng.IntN(len(s.keep))
			s.keep[i]()
			s.keep = append(s.keep[:i], s.keep[i+1:]...)
		}
	}
	for n, data := range s.data {
		for i, b := range data {
			if b != byte(n)+byte(i) {
				t.Fatalf("byte %d of capture %d is %d", i, n, b)
			}
		}
	}
	if full == 0 {
		t.Error("the pool was never full: the test does not test")
	}
}

// TestReaderAnswers has the tap ask which nodes of a graph are points: the region holds the answer when the records are
// read, and no sink hears of the graph.
func TestReaderAnswers(t *testing.T) {
	points := []ggmlhooks.PointRef{{Point: ggmlhooks.PointEmbeddings, Layer: ggmlhooks.NoLayer}}
	region := newTestRegion(t, Options{Start: Wish{Selection: ggmlhooks.Selection{Points: points}}})
	p, s := newProducer(region.mem), &sink{}
	if region.header.Config.Start.Points != 1 {
		t.Error("the tap is not to ask for points")
	}
	p.put(recGraph, rec{}.u64(9).u32(math.MaxUint32, 2, 2, 0).i32(4, -1).u32(0, 0).u64(0).u32(0, 0))
	p.put(recNodes, append(rec{}.u64(9).u32(0, 2),
		append(node("pos", "GET_ROWS", 0, -1, -2), node("misnamed", "GET_ROWS", 0, -2, -1)...)...))
	p.put(recLeafs, append(rec{}.u64(9).u32(0, 2), append(leaf("inp_tokens", 0), leaf("token_embd.weight", 0)...)...))
	drain(t, NewReader(region, s))
	if h := region.header; h.PointsOf != 9 || h.Points[0] != 1<<1 || len(s.said) != 0 {
		t.Errorf("graph %d has points %b; the sink got %q", h.PointsOf, h.Points[0], s.said)
	}
}

func TestReaderRefusesDamage(t *testing.T) {
	capture := func(slot, slots uint32, size uint64) rec {
		return rec{}.u64(1, 1, 1).i32(0).u32(slot, slots, 0).u64(size).u64(1, 1, 1, 1).i32(0, 1).u32(0, 1).u64(0)
	}
	graph := func(nodes, leafs uint32) rec {
		return rec{}.u64(1).u32(0, nodes, leafs, 0).i32(1, 1).u32(0, 0).u64(0).u32(0, 0)
	}
	head := rec{}.u64(1).u32(0, 1)
	like := func(id, before uint64, changes uint32) rec {
		return rec{}.u64(id).u32(0, 0, 0, 0).i32(1, 1).u32(0, 0).u64(before).u32(changes, 0)
	}
	changed := func(p *producer) { // graph 2 is to differ from graph 1, of one node, in one change
		p.put(recGraph, graph(1, 0))
		p.put(recNodes, append(head, node("a", "ADD", 0)...))
		p.put(recGraph, rec{}.u64(2).u32(0, 1, 0, 0).i32(1, 1).u32(0, 0).u64(1).u32(1, 0))
	}
	tests := []struct {
		name string
		put  func(*producer)
	}{
		{"unknown type", func(p *producer) { p.put(99, nil) }},
		{"short hello", func(p *producer) { p.put(recHello, nil) }},
		{"short context", func(p *producer) { p.put(recContext, make(rec, 16)) }},
		{"context with a text beyond its end",
			func(p *producer) { p.put(recContext, rec{}.u64(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0).u16(9, 0, 0, 0)) }},
		{"capture before the pool's end", func(p *producer) { p.put(recCapture, capture(uint32(p.h.NSlots), 1, 10)) }},
		{"capture of more bytes than slots", func(p *producer) { p.put(recCapture, capture(0, 1, SlotBytes+1)) }},
		{"capture with slots that overflow", func(p *producer) { p.put(recCapture, capture(2, ^uint32(0), 1)) }},
		{"call with too many rows", func(p *producer) {
			p.put(recCall, rec{}.u64(1, 1).u32(0, 0, 0, ^uint32(0), 0, ^uint32(0), ^uint32(0), 0))
		}},
		{"exec with too many tokens",
			func(p *producer) { p.put(recExec, rec{}.u64(1, 1, 1, 1, 1).u32(0, 0, 0, 0, ^uint32(0), 0, 0, 0, 0, 0)) }},
		{"graph of too many nodes", func(p *producer) { p.put(recGraph, graph(1<<25, 0)) }},
		{"node of no length",
			func(p *producer) { p.put(recGraph, graph(1, 0)); p.put(recNodes, append(head, rec{}.u32(0, 0)...)) }},
		{"node longer than its record",
			func(p *producer) { p.put(recGraph, graph(1, 0)); p.put(recNodes, append(head, rec{}.u32(4096, 0)...)) }},
		{"node that reads one that is not there", func(p *producer) {
			p.put(recGraph, graph(1, 0))
			p.put(recNodes, append(head, node("a", "ADD", 0, 7)...))
		}},
		{"node that reads a leaf that is not there", func(p *producer) {
			p.put(recGraph, graph(1, 0))
			p.put(recNodes, append(head, node("a", "ADD", 0, -1)...))
		}},
		{"capture of a node that is not there", func(p *producer) {
			p.put(recGraph, graph(1, 0))
			p.put(recNodes, append(head, node("a", "ADD", 0)...))
			p.put(recCapture, rec{}.u64(1, 1, 1).i32(5).u32(0, 1, 0).u64(8).u64(8, 1, 1, 1).i32(0, 1).u32(0, 1).u64(0))
		}},
		{"graph like one that is not there", func(p *producer) { p.put(recGraph, like(1, 7, 0)) }},
		{"graph like one that is larger", func(p *producer) {
			p.put(recGraph, graph(0, 0))
			p.put(recGraph, rec{}.u64(2).u32(0, 1, 0, 0).i32(1, 1).u32(0, 0).u64(1).u32(0, 0))
		}},
		{"graph of more changes than nodes",
			func(p *producer) { p.put(recGraph, graph(0, 0)); p.put(recGraph, like(2, 1, 1)) }},
		{"changes of no graph", func(p *producer) { p.put(recChanges, rec{}.u64(1).u32(0, 1)) }},
		{"change of a node that is not there", func(p *producer) {
			changed(p)
			p.put(recChanges, append(rec{}.u64(2).u32(0, 1), entry(rec{}.i32(5).u8(0, 0, 0, 0, 0, 0, 0, 0))...))
		}},
		{"more changes than there were to be", func(p *producer) {
			changed(p)
			one := entry(rec{}.i32(0).u8(0, 0, 0, 0, 0, 0, 0, 0))
			p.put(recChanges, append(rec{}.u64(2).u32(0, 2), append(one, one...)...))
		}},
		{"change that is too short", func(p *producer) {
			changed(p)
			p.put(recChanges, append(rec{}.u64(2).u32(0, 1),
				entry(rec{}.i32(0).u8(changeShape, 0, 0, 0, 0, 0, 0, 0))...))
		}},
		{"record of no length", func(p *producer) { p.h.QueueHead += 8 }},
		{"record longer than what was written", func(p *producer) {
			copy(p.mem[p.h.QueueOffset:], rec{}.u32(88, recExecEnd))
			p.h.QueueHead += 16
		}},
		{"more unread than the queue holds", func(p *producer) { p.h.QueueHead = 2 * p.h.QueueBytes }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			region := newTestRegion(t, Options{})
			test.put(newProducer(region.mem))
			if _, err := NewReader(region, &sink{}).Drain(); !errors.Is(err, ErrQueue) {
				t.Errorf("the error is %v, not ErrQueue", err)
			}
		})
	}
}

func TestReaderReturnsTheSinksError(t *testing.T) {
	region := newTestRegion(t, Options{})
	p := newProducer(region.mem)
	full := errors.New("disk full")
	for range 3 {
		p.put(recExecEnd, make(rec, 88))
	}
	s := &sink{fail: full}
	r := NewReader(region, s)
	if _, err := r.Drain(); !errors.Is(err, full) || len(s.said) != 1 {
		t.Errorf("the error is %v after %d records", err, len(s.said))
	}
}

// FuzzReader reads arbitrary bytes as a queue: an error or records, never a panic, and never a read beyond the queue.
func FuzzReader(f *testing.F) {
	region := newTestRegion(f, Options{})
	p := newProducer(region.mem)
	seed := func(put func()) {
		from := p.h.QueueHead
		put()
		f.Add(bytes.Clone(p.mem[p.h.QueueOffset+from:p.h.QueueOffset+p.h.QueueHead]), uint16(0))
	}
	seed(func() { p.put(recHello, rec{}.i32(1).u32(0).u64(1, 2)) })
	seed(func() {
		p.put(recContext, append(rec{}.u32(0).i32(1).u64(1, 1, 1).u32(1, 1, 1, 1).
			i32(1, 1, 1, 1, 1, 1, 1, 1, 1, 0), rec{}.u16(1, 1, 1, 1).text("abcd")...))
	})
	seed(func() {
		p.put(recGraph, rec{}.u64(9).u32(3, 2, 1, 1).i32(4, -1).u32(6, 1).u64(0).u32(0, 0))
		p.put(recNodes, append(rec{}.u64(9).u32(0, 2),
			append(node("a", "ADD", 0, -1), node("b", "ADD", 0, 0, -1)...)...))
		p.put(recLeafs, append(rec{}.u64(9).u32(0, 1), leaf("w", 0)...))
	})
	seed(func() {
		p.put(recGraph, rec{}.u64(9).u32(3, 1, 0, 0).i32(4, -1).u32(6, 1).u64(0).u32(0, 0))
		p.put(recNodes, append(rec{}.u64(9).u32(0, 1), node("a", "ADD", 0)...))
		p.put(recGraph, rec{}.u64(10).u32(3, 1, 0, 0).i32(4, -1).u32(6, 1).u64(9).u32(1, 0))
		p.put(recChanges, append(rec{}.u64(10).u32(0, 1),
			entry(rec{}.i32(0).u8(changePlace, 1, 1, 0, 0, 0, 0, 0).u64(5, 64))...))
	})
	seed(func() {
		p.put(recCall, rec{}.u64(5, 13).u32(3, 0, 3, 2, 0, 2, 1, 0).i32(7, 0, 0).u16(1, 0).i32(8, 1, 0).u16(2, 0).
			i32(6))
	})
	seed(func() {
		p.put(recExec, rec{}.u64(21, 9, 5, 14, 100).u32(3, 1, 1, 1, 3, 3, 1, 0, 0, 0).i32(7, 8, 9, 0, 1, 2, 2))
	})
	seed(func() { p.capture(1, 0, 100, func([]byte) {}) })
	seed(func() { p.put(recResolve, rec{}.u32(3, 1).u64(21)) })

	f.Fuzz(func(t *testing.T, queue []byte, skew uint16) {
		h := region.header
		if uint64(len(queue)) > h.QueueBytes {
			return
		}
		start := h.QueueBytes - uint64(skew)&^7 // records across the end of the queue, too
		for i, b := range queue {
			region.mem[h.QueueOffset+(start+uint64(i))&(h.QueueBytes-1)] = b
		}
		h.QueueTail, h.QueueHead = start, start+uint64(len(queue))&^7
		h.RingTail = h.RingHead
		s := &sink{}
		_, err := NewReader(region, s).Drain()
		if err != nil && !errors.Is(err, ErrQueue) {
			t.Errorf("an error of another kind: %v", err)
		}
		for _, g := range s.graphs { // what is handed on can be followed
			for _, n := range g.Nodes {
				for _, src := range n.Src {
					if int(src) >= len(g.Nodes) || int(-1-src) >= len(g.Leafs) {
						t.Errorf("node %s reads %d of %d nodes and %d leafs", n.Name, src, len(g.Nodes), len(g.Leafs))
					}
				}
				if n.Alias >= len(g.Nodes) {
					t.Errorf("alias %d", n.Alias)
				}
				_, _ = n.Rows.String(), n.Component.String()
			}
		}
	})
}

// TestPause: the collector looks at once again where tensors come, seldom where a few records do, sleeps deeply when
// nothing has come for a second, unless something else is to be read, and wakes when the model's process ends.
func TestPause(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		before      pauses
		found, much bool
		want        time.Duration
		deep        bool
	}{
		{pauses{}, false, false, pollBusy, false},
		{pauses{pause: pollIdle}, true, true, pollBusy, false},
		{pauses{pause: pollBusy}, true, false, 2 * pollBusy, false},
		{pauses{pause: pollIdle}, true, false, pollIdle, false},
		{pauses{pause: pollIdle, often: true}, true, false, pollFew, false},
		{pauses{pause: pollFew, often: true}, false, false, 2 * pollFew, false},
		{pauses{pause: pollIdle}, false, false, pollIdle, false},
		{pauses{pause: pollIdle, quiet: second - pollIdle}, false, false, pollDeep, true},
		{pauses{pause: pollIdle, quiet: second, often: true}, false, false, pollIdle, false},
		{pauses{pause: pollDeep, quiet: second}, false, false, pollDeep, true},
		{pauses{pause: pollDeep, quiet: second}, true, false, pollIdle, false},
		{pauses{pause: pollIdle, quiet: second - 50*ms}, false, false, pollIdle, false},
	} {
		p := c.before
		if how := p.next(c.found, c.much); p.pause != c.want || how == sleepDeep != c.deep {
			t.Errorf("after %+v, found %v, much %v: %v, sleep %d; want %v, deep %v", c.before, c.found, c.much, p.pause,
				how, c.want, c.deep)
		}
	}
	for want, p := range map[int]pauses{1: {calm: second}, 4: {calm: second - ms}, 5: {calm: second, often: true}} {
		if got := p.processors(max(want, 4)); got != want {
			t.Errorf("%d processors after %v of little", got, p.calm)
		}
	}
	reader := NewReader(newTestRegion(t, Options{}), nil)
	before, batch := reader.read(), reader.region.plan.queueBytes/16
	reader.tail += batch
	few := reader.exceedsBatch(before)
	reader.tail++
	many, none := reader.exceedsBatch(before), reader.exceedsBatch(reader.read())
	reader.tail -= batch + 1
	reader.executions.pieces++
	if tensor := reader.exceedsBatch(before); few || !many || none || !tensor {
		t.Errorf("few are a batch: %v, many: %v, none: %v, a tensor: %v", few, many, none, tensor)
	}
	exited := make(chan struct{})
	end := reader.wakeAt(exited, nil)
	close(exited)
	reader.Sleep(time.Hour) // woken, or the test never ends
	end()
	newProducer(reader.region.mem).put(recPad, nil)
	reader.sleep(time.Hour, sleepDeep) // something lies in the queue
	reader.wakeAt(make(chan struct{}), nil)()
}

// TestLeases: a tensor is leased until its slots are given back.
func TestLeases(t *testing.T) {
	s := &sink{hold: true}
	reader := NewReader(newTestRegion(t, Options{}), s)
	p := newProducer(reader.region.mem)
	for i := range uint64(3) {
		p.capture(i, 0, 3000, func([]byte) {})
	}
	if n, err := reader.Drain(); err != nil || reader.leases() != 3 {
		t.Fatalf("%d records, %d leases, %v", n, reader.leases(), err)
	}
	for i, release := range s.keep {
		if release(); reader.leases() != int64(2-i) {
			t.Errorf("%d leases after %d were given back", reader.leases(), i+1)
		}
	}
}
