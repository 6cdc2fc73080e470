package filemap

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

const ms = int64(1e6)

// output collects a recorder's lines as their JSON would keep them.
type output struct {
	lines  []resource.WaitLine
	faults []resource.FaultLine
}

func (o *output) options() recorderOptions {
	files := newFiles()
	files.Proc = "/nowhere"
	files.files[fileKey{1, 1}] = &file{path: "a.bin", known: true, header: -1, padding: -1, whole: -1}
	return recorderOptions{
		Files: files,
		Line: func(l *resource.WaitLine) error {
			o.lines = append(o.lines, *l)
			return nil
		},
		Fault: func(f *resource.FaultLine) error {
			o.faults = append(o.faults, *f)
			return nil
		},
	}
}

// faultAt is a fault of so many nanoseconds that began then.
func faultAt(begin, wait int64) *Event {
	return &Event{Kind: Fault, BeginNS: begin, EndNS: begin + wait, At: 0x1000, File: fileKey{1, 1}, Flags: Slow,
		BlockedNS: wait / 2}
}

func byExec(lines []resource.WaitLine, kind string) map[uint64]*resource.WaitLine {
	all := map[uint64]*resource.WaitLine{}
	for i := range lines {
		if l := &lines[i]; l.Kind == kind && l.Exec != nil {
			all[*l.Exec] = l
		}
	}
	return all
}

func TestRecorder(t *testing.T) {
	var o output
	r := newRecorder(o.options())
	r.Take(faultAt(5*ms, 7))
	r.Begin(Graph{Ctx: 1, Exec: 10, Phase: "prefill", TokenFirst: 0, TokenCount: 3, BeginNS: 100 * ms})
	r.End(10, 200*ms)
	r.Take(faultAt(150*ms, 11))
	r.Take(faultAt(205*ms, 13))
	r.Begin(Graph{Ctx: 1, Exec: 11, Phase: "decode", TokenFirst: 3, TokenCount: 1, BeginNS: 300 * ms,
		Tokens: []resource.WaitToken{{Index: 3, ID: 7, Pos: 3}}})
	r.Take(faultAt(199*ms, 60*ms)) // began in the graph before, ended between
	r.Upto(320 * ms)
	if len(o.lines) != 0 {
		t.Fatalf("written before it was complete: %+v", o.lines)
	}
	r.End(11, 400*ms)
	r.Take(&Event{Kind: Request, BeginNS: 310 * ms, EndNS: 330 * ms, File: fileKey{1, 1}, First: 0, Last: 3,
		Bytes: 16384})
	r.Upto(551 * ms) // graph 10 ended 350 ms before, and load
	if len(o.lines) != 2 {
		t.Fatalf("%d lines: %+v", len(o.lines), o.lines)
	}
	if err := r.Close(1000*ms, nil); err != nil {
		t.Fatal(err)
	}
	kinds := []string{}
	for _, l := range o.lines {
		kinds = append(kinds, l.Kind)
	}
	if want := []string{"phase", "graph", "between", "graph", "total"}; !slices.Equal(kinds, want) {
		t.Fatalf("kinds %v, want %v", kinds, want)
	}
	load, graphs, between := o.lines[0], byExec(o.lines, "graph"), byExec(o.lines, "between")
	if load.Phase != "load" || load.WaitNS != 7 || load.EndNS != 100*ms {
		t.Errorf("load %+v", load)
	}
	if g := graphs[10]; g.Faults != 2 || g.WaitNS != 11+60*ms || g.StalledNS != 11+60*ms || g.MaxNS != 60*ms ||
		g.DurationNS != 100*ms || g.P50NS != 11 {
		t.Errorf("graph 10: %+v", g)
	}
	if b := between[10]; b.WaitNS != 13 || b.BeginNS != 200*ms || b.EndNS != 300*ms {
		t.Errorf("between %+v", b)
	}
	if g := graphs[11]; g.Requests != 1 || g.BlockBytes != 16384 || g.BlockNS != 20*ms || g.WaitNS != 0 ||
		g.Tokens[0].ID != 7 {
		t.Errorf("graph 11: %+v", g)
	}
	if len(o.faults) != 5 || o.faults[1].In != "graph" || *o.faults[1].Exec != 10 {
		t.Errorf("faults %+v", o.faults)
	}
}

// TestHeld: what may be set-up waits for its decision, and the lines after it with it; but not for ever.
func TestHeld(t *testing.T) {
	var o output
	r := newRecorder(o.options())
	for i := range uint64(3) {
		r.Begin(Graph{Exec: i, Phase: "decode", BeginNS: int64(100+100*i) * ms, Held: i < 2})
		r.End(i, int64(150+100*i)*ms)
	}
	r.Upto(2000 * ms)
	if len(o.lines) != 1 {
		t.Fatalf("%d lines before it is decided", len(o.lines))
	}
	r.decide(0, 0, "setup")
	r.Upto(2001 * ms)
	if len(o.lines) != 2 || o.lines[1].Phase != "setup" {
		t.Fatalf("lines %+v", o.lines)
	}
	r.decide(0, 1, "")
	r.Upto(2002 * ms)
	if len(o.lines) != 4 || o.lines[2].Phase != "decode" {
		t.Fatalf("lines %+v", o.lines)
	}
	for i := range uint64(maxHeld + 9) {
		r.Begin(Graph{Exec: 100 + i, BeginNS: int64(3000+i) * ms, Held: true})
		r.End(100+i, int64(3000+i)*ms)
	}
	r.Upto(9000 * ms)
	if n := len(o.lines) - 4; n != 9 {
		t.Errorf("%d of %d held lines were written, want 9", n, maxHeld+9)
	}
}

// TestNothingLost: whatever comes in whatever order, the lines without the total add up to it, the top places and
// the others to each line, and a detail stands for each event.
func TestNothingLost(t *testing.T) {
	for seed := range int64(30) {
		random := rand.New(rand.NewSource(seed))
		var o output
		opts := o.options()
		opts.Top = 2
		for i := range uint64(5) {
			opts.Files.files[fileKey{1, i}] = &file{path: fmt.Sprint(i), known: true, header: -1, padding: -1,
				whole: -1}
		}
		r := newRecorder(opts)
		want, n := chaos(random, r)
		if err := r.Close(1e12, nil); err != nil {
			t.Fatal(err)
		}
		var sum resource.WaitFigures
		for i := range o.lines {
			l := &o.lines[i]
			var inside resource.WaitFigures
			for j := range l.Places {
				inside.Add(&l.Places[j].WaitFigures)
			}
			for _, m := range l.Memory {
				inside.Add(m)
			}
			if l.Others != nil {
				inside.Add(&l.Others.WaitFigures)
			}
			if inside != l.WaitFigures {
				t.Fatalf("seed %d: places add up to %+v, the line has %+v", seed, inside, l.WaitFigures)
			}
			if l.StalledNS > l.WaitNS || l.MaxNS > l.WaitNS {
				t.Errorf("seed %d: %+v", seed, l)
			}
			if l.Kind != resource.WaitTotal {
				sum.Add(&l.WaitFigures)
			}
		}
		total := o.lines[len(o.lines)-1]
		if sum != total.WaitFigures || total.WaitFigures != want || total.Kind != resource.WaitTotal ||
			len(o.faults) != n {
			t.Errorf("seed %d: lines add up to %+v\ntotal %+v\nwant  %+v; %d of %d details", seed, sum,
				total.WaitFigures, want, len(o.faults), n)
		}
	}
}

// chaos reports graphs and events to a recorder, some of them late. It returns the sums of the events, and how many
// there were.
func chaos(random *rand.Rand, r *Recorder) (want resource.WaitFigures, n int) {
	now, exec := int64(1e9), uint64(0)
	for range 400 {
		now += random.Int63n(40 * ms)
		switch random.Intn(6) {
		case 0:
			exec++
			r.Begin(Graph{Ctx: uint32(random.Intn(2)), Exec: exec, BeginNS: now - random.Int63n(3*ms),
				Held: random.Intn(4) == 0})
		case 1:
			r.End(exec, now)
		case 2:
			r.Upto(now)
			r.decide(uint32(random.Intn(2)), exec, []string{"", "setup"}[random.Intn(2)])
		default:
			e := faultAt(now-random.Int63n(600*ms), random.Int63n(200*ms))
			e.Kind = []Kind{Fault, Call, Read, Request}[random.Intn(4)]
			e.File.Ino = uint64(random.Intn(6)) // one is not known
			e.First = uint64(random.Intn(100))
			e.Last = e.First + uint64(random.Intn(9))
			if e.Kind == Request {
				e.Bytes = 512 + uint64(random.Intn(1<<16))
			}
			if random.Intn(5) == 0 {
				e.File.Dev = 0
			}
			r.Take(e)
			f := figures(e)
			switch e.Kind {
			case Read:
				f.ReadBytes = (e.Last - e.First + 1) * r.o.Files.Page
			case Request:
				f.BlockBytes = e.Bytes
			}
			want.Add(&f)
			n++
		}
	}
	return want, n
}

// TestBounded: without a word of the tap, and with a flood of events, memory stays within its bounds.
func TestBounded(t *testing.T) {
	var o output
	opts := o.options()
	opts.Fault = nil
	r := newRecorder(opts)
	for i := range int64(3 * maxPending / 2) {
		r.Take(faultAt(i*1000, 900))
	}
	if len(r.pending) >= maxPending {
		t.Errorf("%d events wait", len(r.pending))
	}
	for i := range uint64(2 * maxLines) {
		r.Begin(Graph{Exec: i, BeginNS: int64(1e9) + int64(i), Held: true}) // none ends
		r.Upto(int64(2e9))
	}
	if l := &r.lines; len(l.waiting) > maxLines+1 || len(l.byExec) > maxLines+1 {
		t.Errorf("%d lines wait, %d executions", len(l.waiting), len(l.byExec))
	}
	if err := r.Close(3e9, nil); err != nil {
		t.Fatal(err)
	}
	if total := o.lines[len(o.lines)-1]; total.Faults != 3*maxPending/2 {
		t.Errorf("%d faults", total.Faults)
	}
}

func TestIntervals(t *testing.T) {
	opts := (&output{}).options()
	opts.Line, opts.Intervals = nil, true
	r := newRecorder(opts)
	r.Take(faultAt(10, 5))
	if l := r.interval(100); l.Faults != 1 || l.EndNS != 100 || l.Kind != resource.WaitInterval {
		t.Errorf("first %+v", l)
	}
	r.Take(faultAt(90, 50))
	r.Upto(1e9)
	if l := r.interval(200); l.Faults != 1 || l.BeginNS != 100 || l.WaitNS != 50 {
		t.Errorf("second %+v", l)
	}
	if err := r.Close(300, nil); err != nil {
		t.Error(err)
	}
}

func TestCover(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 200 {
		var c cover
		covered := make([]bool, 2000)
		for range random.Intn(300) {
			from := random.Intn(1990)
			to := from + random.Intn(10)
			c.add(int64(from), int64(to))
			for i := from; i < to; i++ {
				covered[i] = true
			}
		}
		n := int64(0)
		for _, one := range covered {
			if one {
				n++
			}
		}
		if c.total() != n {
			t.Fatalf("%d covered, want %d: %v", c.total(), n, c.spans)
		}
	}
	var c cover
	for i := range int64(10 * maxSpans) {
		c.add(10*i, 10*i+3)
	}
	if c.total() != 30*maxSpans || len(c.spans) > maxSpans {
		t.Errorf("%d covered by %d spans", c.total(), len(c.spans))
	}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		ranks []int
		want  int
	}{{nil, 0}, {[]int{4}, 1}, {[]int{1, 2, 3}, 3}, {[]int{3, 2, 1}, 1}, {[]int{0, 9, 1, 2, 8, 3}, 4}} {
		if got := rising(c.ranks); got != c.want {
			t.Errorf("%v: %d, want %d", c.ranks, got, c.want)
		}
	}
	var o output
	opts := o.options()
	for i, name := range []string{"a", "b", "c"} {
		opts.Files.files[fileKey{2, uint64(i)}] = &file{path: "m", known: true, header: -1, padding: -1,
			whole: opts.Files.addPlace(Place{Tensor: name})}
	}
	r := newRecorder(opts)
	r.Begin(Graph{Exec: 1, BeginNS: 1, Weights: []string{"a", "c", "b", "d"}})
	for i, ino := range []uint64{0, 1, 0, 2} {
		e := faultAt(int64(10+i), 1)
		e.File = fileKey{2, ino}
		r.Take(e)
	}
	r.End(1, 20)
	r.Begin(Graph{Exec: 2, BeginNS: 30, Weights: []string{"a"}})
	r.Take(&Event{Kind: Fault, BeginNS: 31, EndNS: 32, File: fileKey{2, 0}})
	r.End(2, 40)
	if err := r.Close(50, nil); err != nil {
		t.Fatal(err)
	}
	graphs := byExec(o.lines, "graph")
	if want := (&resource.WaitOrder{Tensors: 3, Known: 4, InOrder: 2}); !reflect.DeepEqual(graphs[1].FirstFaults,
		want) || graphs[2].FirstFaults != nil {
		t.Errorf("first faults %+v, then %+v", graphs[1].FirstFaults, graphs[2].FirstFaults)
	}
}

// TestUnsure: what is read of a file before its name is known stands in the tensors that it turns out to hold.
func TestUnsure(t *testing.T) {
	path, model := small(t)
	key, err := keyOf(path)
	if err != nil {
		t.Fatal(err)
	}
	var o output
	opts := o.options()
	r := newRecorder(opts)
	r.ReportedUpTo(100 * ms)
	size := uint64(model.Size)
	r.Take(&Event{Kind: Read, File: key, BeginNS: ms, EndNS: 2 * ms, Last: (size - 1) / opts.Files.Page})
	r.Upto(100 * ms)
	if len(r.pending) != 1 {
		t.Error("an event of an unknown file did not wait")
	}
	if _, err := r.AddPath(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(200*ms, nil); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, p := range o.lines[0].Places {
		got[p.Tensor] = p.ReadBytes
	}
	if got["blk.0.attn_q.weight"] != 5001 || got[""] != 0 {
		t.Errorf("bytes by tensor %v", got)
	}
}
