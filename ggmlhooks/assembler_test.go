package ggmlhooks

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// notes is a recorder that notes what it is handed.
type notes struct {
	said []string
	err  error
}

func (n *notes) say(format string, args ...any) error {
	n.said = append(n.said, fmt.Sprintf(format, args...))
	return n.err
}

func (n *notes) Record(x *Execution) error {
	switch {
	case !x.Ended:
		return n.say("%d lost", x.Number)
	case x.Undecided:
		return n.say("%d undecided", x.Number)
	case x.DoneNS != 0:
		return n.say("%d %s done %d", x.Number, x.Phase, x.DoneNS)
	}
	return n.say("%d %s", x.Number, x.Phase)
}

func (n *notes) Retract(ctx uint32, first, last uint64) error {
	return n.say("not %d to %d of %d", first, last, ctx)
}

func (n *notes) Close() error { return n.say("closed") }

// driver plays reports to an assembler, and notes what becomes of them.
type driver struct {
	*Assembler
	*notes
	t *testing.T
	n uint64
}

func (d *driver) Close() error { return d.Assembler.Close() }

func newDriver(t *testing.T, hold int64) *driver {
	n := &notes{}
	d := &driver{NewAssembler(hold, n), n, t, 0}
	d.must(d.Graph(&Graph{ID: 1, Tokens: 1, Nodes: make([]Node, 3)}))
	d.must(d.Graph(&Graph{ID: 2, Ctx: 1, Tokens: 1, Nodes: make([]Node, 3)}))
	return d
}

func (d *driver) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// begin begins an execution of one token.
func (d *driver) begin(ctx uint32, provisional bool) uint64 {
	d.t.Helper()
	d.n++
	d.must(d.Exec(&Exec{
		Number: d.n, Graph: uint64(ctx) + 1, Ctx: ctx, Tokens: []int32{1}, MonoNS: int64(d.n), Provisional: provisional,
	}))
	return d.n
}

func (d *driver) run(ctx uint32, provisional bool) uint64 {
	d.t.Helper()
	n := d.begin(ctx, provisional)
	d.must(d.ExecEnd(ExecEnd{Number: n}))
	return n
}

func (d *driver) wants(want ...string) {
	d.t.Helper()
	if !slices.Equal(d.said, want) {
		d.t.Errorf("%q, want %q", d.said, want)
	}
	d.said = nil
}

// TestDecided: executions are recorded once, in order per context, when it is decided what they were.
func TestDecided(t *testing.T) {
	d := newDriver(t, 0)
	d.run(0, true)
	d.run(1, false) // another context waits for nobody
	d.wants("2 prefill")
	d.must(d.Resolve(Resolve{Exec: 1, Discarded: true}))
	d.wants("1 setup")
	d.run(0, true)
	open := d.begin(0, true)
	d.must(d.Resolve(Resolve{Exec: open}))
	d.wants("3 prefill")
	d.must(d.ExecEnd(ExecEnd{Number: open}))
	d.wants("4 prefill")
	d.must(d.ExecEnd(ExecEnd{Number: 99})) // its beginning was dropped
	d.begin(0, false)
	d.run(0, false) // the end of the one before was lost
	d.wants("5 lost", "6 prefill")
	d.run(0, true)
	d.begin(0, false) // the model was killed
	d.must(errors.Join(d.Close(), d.Close()))
	d.wants("7 prefill", "8 lost", "closed")
}

// TestHold: what is held back has a bound in bytes; beyond it executions are recorded as undecided, and taken back
// if they turn out to be set-up.
func TestHold(t *testing.T) {
	d := newDriver(t, 2*(512+84))
	d.run(0, true)
	d.run(1, true)
	d.wants()
	d.run(0, true)
	d.wants("1 undecided", "3 undecided", "2 undecided")
	if d.held != 0 {
		t.Errorf("%d bytes are held", d.held)
	}
	d.run(0, true)
	d.must(d.Resolve(Resolve{Exec: 4, Discarded: true}))
	d.must(d.Resolve(Resolve{Ctx: 1, Exec: 4}))
	d.wants("not 1 to 3 of 0", "4 setup")
}

// TestSync: what a device computes is recorded when it is done, or when nobody will say when that was.
func TestSync(t *testing.T) {
	d := newDriver(t, 0)
	async := func() uint64 {
		n := d.begin(0, false)
		d.must(d.ExecEnd(ExecEnd{Number: n, Async: true}))
		return n
	}
	d.must(d.Sync(Sync{Exec: async(), MonoNS: 50, Graphs: 1}))
	d.wants("1 prefill done 50")
	async()
	d.must(d.Sync(Sync{Exec: async(), MonoNS: 60, Graphs: 2}))
	d.wants("2 prefill", "3 prefill")
	async()
	d.wants()
	d.run(0, false) // on the host
	d.wants("4 prefill", "5 prefill")
	for range maxComputing + 1 {
		async()
	}
	d.wants("6 prefill")
}

// TestPlans: the plan of a graph is there until one of a later graph was asked for, however many are known by then.
func TestPlans(t *testing.T) {
	var plans Plans[string]
	for id, name := range []string{"a", "b", "c", "d"} {
		plans.Put(&Graph{ID: uint64(id)}, name)
	}
	for _, id := range []uint64{1, 1, 2, 3} {
		if got, want := plans.Of(&Execution{Graph: &Graph{ID: id}}), string(rune('a'+id)); got != want {
			t.Errorf("the plan of graph %d is %q", id, got)
		}
	}
	if n := len(plans.of[0]); n != 1 {
		t.Errorf("%d plans are kept", n)
	}
}

// TestKept: an execution has what was reported of it; what does not fit together is an error.
func TestKept(t *testing.T) {
	d := newDriver(t, 0)
	for range 2 { // the second time in old memory
		n := d.begin(0, false)
		d.must(d.Input(&Input{Exec: n, Leaf: 3, Values: []int64{int64(n)}}))
		d.must(d.Times(&Times{Exec: n, BeginNS: 7, Nodes: []NodeTime{{Node: 2}}}))
		released := 0
		for _, purpose := range []Purpose{ForRouting, ForStream} {
			d.must(d.Capture(&Capture{Exec: n, Node: 2, For: purpose, Data: []byte{9}, Release: func() { released++ }}))
		}
		x := d.open[n]
		if len(x.Inputs) != 1 || x.Inputs[0].Values[0] != int64(n) || len(x.Routing) != 1 ||
			x.Routing[0].Data[0] != 9 ||
			!x.Timed || x.BeganNS() != 7 || released != 2 || len(x.Rows) != 1 {
			t.Errorf("%+v, released %d times", x, released)
		}
		d.must(d.ExecEnd(ExecEnd{Number: n}))
	}
	open := d.begin(0, false)
	for what, err := range map[string]error{
		"an unknown graph":           d.Exec(&Exec{Number: 9, Graph: 77}),
		"an input of nothing":        d.Input(&Input{Exec: 99}),
		"a time of an unknown node":  d.Times(&Times{Exec: open, Nodes: []NodeTime{{Node: 3}}}),
		"a time of a node before it": d.Times(&Times{Exec: open, Nodes: []NodeTime{{Node: -1}}}),
	} {
		if !errors.Is(err, ErrDesync) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.err = errors.New("full")
	if err := d.ExecEnd(ExecEnd{Number: open}); !errors.Is(err, d.err) {
		t.Error(err)
	}
}

// TestAssemblerAllocates: an execution costs nothing.
func TestAssemblerAllocates(t *testing.T) {
	a := NewAssembler(0)
	if err := a.Graph(&Graph{ID: 1, Tokens: 1, Nodes: make([]Node, 3)}); err != nil {
		t.Fatal(err)
	}
	e := Exec{Graph: 1, Tokens: []int32{1}, Pos: []int32{0}}
	in, times := Input{Values: []int64{4}}, Times{Nodes: []NodeTime{{Node: 2}}}
	step := func() {
		e.Number++
		in.Exec, times.Exec = e.Number, e.Number
		if a.Exec(&e) != nil || a.Input(&in) != nil || a.Times(&times) != nil ||
			a.ExecEnd(ExecEnd{Number: e.Number}) != nil {
			t.Error("a report was refused")
		}
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per execution", n)
	}
}
