package ggmlhooks

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// takes notes what a recorder of tensors is handed, and releases each tensor.
type takes struct{ notes }

func (n *takes) Start(x *Execution) error { return n.say("start %d", x.Number) }

func (n *takes) Tensor(x *Execution, c *Capture) error {
	c.Release()
	return n.say("tensor %d of %d", c.Data[0], x.Number)
}

func (n *takes) Settle(x *Execution) error {
	if !x.Ended {
		return n.say("settle %d, which has not ended", x.Number)
	}
	return n.say("settle %d %s", x.Number, x.Phase)
}

func (n *takes) Commit(before int64) error {
	if before > 1000 {
		return n.say("commit all")
	}
	return n.say("commit to %d", before)
}

func (n *takes) Refuse(started []*Execution) error { return n.say("refuse, %d started", len(started)) }

func (n *takes) Record(x *Execution) error { return n.say("record %d", x.Number) }
func (n *takes) Close() error              { return n.say("closed") }

// taker plays reports with tensors to an assembler that has a recorder of tensors, and others.
type taker struct {
	driver
	leases int // of tensors that were not released
	data   byte
}

func newTaker(t *testing.T, others ...io.Closer) *taker {
	to := &takes{}
	d := &taker{driver: driver{NewAssembler(0, append([]io.Closer{to}, others...)...), &to.notes, t, 0}}
	for ctx := range uint32(2) {
		nodes := []Node{{Wanted: true}, {}}
		d.must(d.Graph(&Graph{ID: uint64(ctx) + 1, Ctx: ctx, Tokens: 1, Nodes: nodes, Leafs: make([]Leaf, 1)}))
	}
	return d
}

func (d *taker) Close() error { return d.Assembler.Close() }

// begin begins an execution whose token has its number.
func (d *taker) begin(ctx uint32, provisional bool) uint64 {
	d.t.Helper()
	d.n++
	d.must(d.Exec(&Exec{
		Number: d.n, Graph: uint64(ctx) + 1, Ctx: ctx, Tokens: []int32{1}, TokenFirst: int64(d.n),
		Provisional: provisional,
	}))
	return d.n
}

// tensor captures a tensor of so many bytes.
func (d *taker) tensor(exec uint64, bytes int) {
	d.t.Helper()
	d.must(d.capture(exec, 0, bytes))
}

func (d *taker) capture(exec uint64, node, bytes int) error {
	d.leases++
	d.data++
	data := make([]byte, bytes)
	data[0] = d.data
	return d.Capture(&Capture{Exec: exec, Node: node, For: ForStream, Data: data, Release: func() { d.leases-- }})
}

func (d *taker) end(exec uint64, async bool) {
	d.t.Helper()
	d.must(d.ExecEnd(ExecEnd{Number: exec, Async: async}))
}

// TestTensors: tensors of the run are handed on as they come; those of what may be set-up when it is decided.
func TestTensors(t *testing.T) {
	d := newTaker(t)
	x := d.begin(0, true)
	d.tensor(x, 1)
	y := d.begin(1, false) // another context waits for nobody, but its token does
	d.tensor(y, 1)
	d.end(y, false)
	d.wants("start 2", "tensor 2 of 2", "settle 2 prefill", "commit to 1", "record 2")
	d.tensor(x, 1)
	d.end(x, false)
	d.wants()
	d.must(d.Resolve(Resolve{Exec: x, Discarded: true}))
	d.wants("tensor 1 of 1", "tensor 3 of 1", "settle 1 setup", "commit all", "record 1")
	x = d.begin(0, true)
	d.tensor(x, 1)
	d.must(d.Resolve(Resolve{Exec: x})) // while it is computed
	d.wants("start 3", "tensor 4 of 3", "commit to 3")
	d.tensor(x, 1)
	d.end(x, false)
	d.wants("tensor 5 of 3", "settle 3 prefill", "commit all", "record 3")
	d.begin(0, false) // its end is lost
	x = d.begin(0, false)
	d.end(x, false)
	d.wants("start 4", "start 5", "settle 4, which has not ended", "settle 5 prefill", "commit all", "record 4",
		"record 5")
	x = d.begin(0, true)
	d.tensor(x, 1) // the model is killed
	d.must(errors.Join(d.Finish(), d.Finish()))
	d.wants("start 6", "tensor 6 of 6", "settle 6, which has not ended", "commit all")
	d.must(errors.Join(d.Close(), d.Close()))
	d.wants("record 6", "closed")
	if d.leases != 0 || d.Slots.held != 0 {
		t.Errorf("%d tensors are not released, %d bytes of slots are held", d.leases, d.Slots.held)
	}
}

// TestSlots: what is held back is counted in whole slots, and has a bound: beyond it the executions are started, and
// may turn out to be set-up after that.
func TestSlots(t *testing.T) {
	d := newTaker(t)
	d.Slots.Bound, d.Slots.Size = 4*64, 64
	x, y := d.begin(0, true), d.begin(1, true)
	d.tensor(x, 65)
	d.tensor(y, 1)
	d.tensor(y, 64)
	if d.wants(); d.Slots.held != 4*64 {
		t.Errorf("%d bytes of slots are held", d.Slots.held)
	}
	d.tensor(x, 1)
	d.wants("start 1", "tensor 1 of 1", "tensor 4 of 1", "start 2", "tensor 2 of 2", "tensor 3 of 2")
	d.tensor(x, 1) // a model that waits for slots gets them
	d.wants("tensor 5 of 1")
	d.end(x, false)
	d.must(d.Resolve(Resolve{Exec: x, Discarded: true}))
	d.wants("settle 1 setup", "commit to 2", "record 1")
	x = d.begin(0, true)
	d.tensor(x, 1)
	d.must(d.Relieve()) // the model waits for slots
	d.wants("start 3", "tensor 6 of 3")
	d.must(d.Relieve())
	d.wants()
	if d.leases != 0 || d.Slots.held != 0 {
		t.Errorf("%d tensors are not released, %d bytes of slots are held", d.leases, d.Slots.held)
	}
}

// TestSettledWhileComputing: a device that still computes an execution keeps nobody from settling it.
func TestSettledWhileComputing(t *testing.T) {
	d := newTaker(t)
	x := d.begin(0, false)
	d.end(x, true)
	d.wants("start 1", "settle 1 prefill", "commit all")
	d.must(d.Sync(Sync{Exec: x, MonoNS: 50, Graphs: 1}))
	d.wants("record 1")
}

// TestRecordedUndecided: an execution that had to be recorded before it is decided keeps its tokens and losses until it
// is settled.
func TestRecordedUndecided(t *testing.T) {
	d := newTaker(t)
	d.hold = 1
	losses := []Loss{{Cause: "pool_full", Count: Count{Packets: 7}}}
	x := d.begin(0, true)
	d.must(d.ExecEnd(ExecEnd{Number: x, Losses: losses}))
	losses[0] = Loss{} // they were valid during the call
	d.wants("record 1")
	if w := d.ctxs[0].waiting; len(w) != 1 || len(w[0].Rows) != 1 || w[0].End.Losses[0].Packets != 7 || d.held != 0 {
		t.Errorf("%+v waits, %d bytes are held", w, d.held)
	}
	d.must(d.Resolve(Resolve{Exec: x}))
	d.wants("start 1", "settle 1 prefill", "commit all")
}

// TestRefused: once recording has stopped, the recorder of tensors goes on counting, and what it had begun to write is
// the run. The others get what waited, and nothing after it.
func TestRefused(t *testing.T) {
	other := &notes{}
	d := newTaker(t, other)
	x := d.begin(0, true)
	d.tensor(x, 1)
	d.must(d.Relieve())
	d.end(x, false)
	y := d.begin(1, true)
	d.end(y, false)
	d.said = nil
	d.must(errors.Join(d.Refuse(), d.Refuse()))
	d.wants("refuse, 1 started", "settle 1 prefill", "commit to 2", "record 1")
	d.must(d.Resolve(Resolve{Ctx: 1, Exec: y, Discarded: true}))
	d.wants("settle 2 setup", "commit all", "record 2")
	x = d.begin(0, false)
	d.tensor(x, 1)
	d.end(x, false)
	d.wants("start 3", "tensor 2 of 3", "settle 3 prefill", "commit all", "record 3")
	if len(other.said) != 0 {
		t.Errorf("the other recorder got %q", other.said)
	}
	d.must(d.Close())
	d.notes = other
	d.wants("1 prefill", "2 prefill", "closed")
}

// TestForeignTensors: a tensor of what was not announced is an error, and released.
func TestForeignTensors(t *testing.T) {
	d := newTaker(t)
	x := d.begin(0, false)
	for what, err := range map[string]error{
		"an unknown execution":     d.capture(99, 0, 1),
		"a node that is not there": d.capture(x, 2, 1),
		"a node that is unwanted":  d.capture(x, 1, 1),
		"a leaf that is not there": d.capture(x, -2, 1),
	} {
		if !errors.Is(err, ErrDesync) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.must(d.capture(x, -1, 1))
	if d.leases != 0 {
		t.Errorf("%d tensors are not released", d.leases)
	}
}

// law is a recorder of tensors that checks the order of what it is handed, and fails now and then.
type law struct {
	*testing.T
	rng     *rand.Rand
	started map[uint64]bool
	settled map[uint64]Phase
	last    map[uint32]uint64 // settled, of each context
	handed  map[byte]int
	begun   *uint64 // executions
}

var errLaw = errors.New("the disk is full")

func (l *law) fail() error {
	if l.rng.IntN(20) == 0 {
		return errLaw
	}
	return nil
}

func (l *law) Start(x *Execution) error {
	if l.started[x.Number] || x.Phase == PhaseSetup {
		l.Errorf("execution %d is started as %s, started before %v", x.Number, x.Phase, l.started[x.Number])
	}
	l.started[x.Number] = true
	return l.fail()
}

func (l *law) Tensor(x *Execution, c *Capture) error {
	l.handed[c.Data[0]]++
	c.Release()
	if _, over := l.settled[x.Number]; over || !l.started[x.Number] && x.Phase != PhaseSetup {
		l.Errorf("a tensor of execution %d, started %v, settled %v", x.Number, l.started[x.Number], over)
	}
	return l.fail()
}

func (l *law) Settle(x *Execution) error {
	_, twice := l.settled[x.Number]
	if twice || l.last[x.Ctx] > x.Number || !l.started[x.Number] && x.Phase != PhaseSetup {
		l.Errorf("execution %d is settled as %s after %d, twice %v", x.Number, x.Phase, l.last[x.Ctx], twice)
	}
	l.settled[x.Number], l.last[x.Ctx] = x.Phase, x.Number
	return l.fail()
}

func (l *law) Commit(before int64) error {
	for exec := uint64(1); exec <= *l.begun && int64(exec) < before; exec++ { // its token has the same number
		if _, ok := l.settled[exec]; !ok {
			l.Errorf("tokens before %d are committed, and %d is not settled", before, exec)
		}
	}
	return l.fail()
}

func (l *law) Refuse(started []*Execution) error {
	for _, x := range started {
		if _, over := l.settled[x.Number]; over || !l.started[x.Number] {
			l.Errorf("execution %d is said to be started: settled %v", x.Number, over)
		}
	}
	return l.fail()
}

func (l *law) Close() error { return nil }

// TestTensorsLaw: in whatever order contexts compute, are decided about, wait for slots and fail, each tensor is handed
// over once, each execution is settled once and as what was decided, and tokens are committed in order.
func TestTensorsLaw(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := &law{
			T: t, rng: rng, started: map[uint64]bool{}, settled: map[uint64]Phase{}, last: map[uint32]uint64{},
			handed: map[byte]int{},
		}
		d := &taker{driver: driver{NewAssembler(int64(rng.IntN(3)*2000), l), &notes{}, t, 0}}
		l.begun = &d.n
		d.Slots.Bound, d.Slots.Size = int64(rng.IntN(3)*256), 64
		for ctx := range uint32(3) {
			d.must(d.Graph(&Graph{ID: uint64(ctx) + 1, Ctx: ctx, Tokens: 1, Nodes: []Node{{Wanted: true}}}))
		}
		must := func(err error) {
			if err != nil && !errors.Is(err, errLaw) {
				t.Fatal(err)
			}
		}
		var open [3]uint64
		var run [3]bool
		discarded := map[uint64]bool{}
		var undecided [3][]uint64
		for range 80 {
			ctx := rng.IntN(3)
			resolve := func(discard bool) {
				if n := len(undecided[ctx]); n > 0 {
					for _, exec := range undecided[ctx] {
						discarded[exec] = discard
					}
					must(d.Resolve(Resolve{Ctx: uint32(ctx), Exec: undecided[ctx][n-1], Discarded: discard}))
					undecided[ctx], run[ctx] = nil, run[ctx] || !discard
				}
			}
			switch rng.IntN(8) {
			case 0, 1, 2:
				if open[ctx] == 0 {
					d.n++
					open[ctx] = d.n
					must(d.Exec(&Exec{
						Number: d.n, Graph: uint64(ctx) + 1, Ctx: uint32(ctx), Tokens: []int32{1},
						TokenFirst: int64(d.n), Provisional: !run[ctx],
					}))
					if !run[ctx] {
						undecided[ctx] = append(undecided[ctx], d.n)
					}
				} else {
					must(d.capture(open[ctx], 0, 1+rng.IntN(128)))
				}
			case 3, 4:
				if open[ctx] != 0 {
					must(d.ExecEnd(ExecEnd{Number: open[ctx], Async: rng.IntN(3) == 0}))
					open[ctx] = 0
				}
			case 5:
				resolve(rng.IntN(2) == 0)
			case 6:
				must(d.Relieve())
			case 7:
				resolve(false)
			}
		}
		refused := rng.IntN(2) == 0
		if refused {
			must(d.Refuse())
		}
		must(d.Close())
		for exec := uint64(1); exec <= d.n; exec++ {
			phase, ok := l.settled[exec]
			if !ok || (phase == PhaseSetup) != discarded[exec] {
				t.Errorf("seed %d: execution %d is %s, settled %v, discarded %v",
					seed, exec, phase, ok, discarded[exec])
			}
		}
		for data := byte(1); data <= d.data; data++ {
			if l.handed[data] != 1 {
				t.Errorf("seed %d: tensor %d was handed over %d times", seed, data, l.handed[data])
			}
		}
		if d.leases != 0 || d.Slots.held != 0 {
			t.Errorf("seed %d: %d tensors are not released, %d bytes are held", seed, d.leases, d.Slots.held)
		}
		if t.Failed() {
			t.Fatalf("seed %d, refused %v", seed, refused)
		}
	}
}

// silent is a recorder of tensors that notes nothing.
type silent struct{}

func (silent) Start(*Execution) error { return nil }
func (silent) Tensor(_ *Execution, c *Capture) error {
	c.Release()
	return nil
}
func (silent) Settle(*Execution) error   { return nil }
func (silent) Commit(int64) error        { return nil }
func (silent) Refuse([]*Execution) error { return nil }
func (silent) Close() error              { return nil }

// TestTensorsAllocate: an execution with tensors costs nothing, whether it is held back or not.
func TestTensorsAllocate(t *testing.T) {
	for _, provisional := range []bool{false, true} {
		t.Run(fmt.Sprintf("provisional %v", provisional), func(t *testing.T) {
			a := NewAssembler(0, silent{})
			if err := a.Graph(&Graph{ID: 1, Tokens: 1, Nodes: []Node{{Wanted: true}}}); err != nil {
				t.Fatal(err)
			}
			e := Exec{Graph: 1, Tokens: []int32{1}, Pos: []int32{0}, Provisional: provisional}
			c := Capture{For: ForStream, Data: make([]byte, 64), Release: func() {}}
			losses := []Loss{{Cause: "pool_full"}}
			step := func() {
				e.Number++
				c.Exec = e.Number
				if a.Exec(&e) != nil || a.Capture(&c) != nil || a.Capture(&c) != nil ||
					a.ExecEnd(ExecEnd{Number: e.Number, Losses: losses}) != nil ||
					a.Resolve(Resolve{Exec: e.Number}) != nil {
					t.Error("a report was refused")
				}
			}
			for range 10 {
				step()
			}
			if n := testing.AllocsPerRun(100, step); n != 0 {
				t.Errorf("%v allocations per execution", n)
			}
		})
	}
}
