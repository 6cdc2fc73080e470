package track

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

// graphOf is a graph of two layers with flash attention over caches of n cells, as llama.cpp builds it. Leafs 0 and
// 1 are the row indices of keys and values, 2 is the mask; layer l's caches are leafs 3+2l and 4+2l, nodes 0 to 2
// are layer 0's, 3 to 5 layer 1's.
func graphOf(tokens, n int) *ggmlhooks.Graph {
	g := &ggmlhooks.Graph{ID: uint64(100*tokens + n), Tokens: tokens}
	g.Leafs = []ggmlhooks.Leaf{{Name: "attn_inp_k_idxs", Input: true}, {Name: "attn_inp_v_idxs", Input: true},
		{Name: "attn_inp_kq_mask", Input: true, NE: [4]int64{int64(n), int64(tokens), 1, 1}}}
	for layer := range 2 {
		for i, letter := range []string{"k", "v"} {
			leaf := ggmlhooks.Leaf{Name: fmt.Sprintf("cache_%s_l%d", letter, layer), NE: [4]int64{4, int64(n), 1, 1},
				NB: [4]uint64{2, 8, 8 * uint64(n), 8 * uint64(n)}}
			leaf.Place = ggmlhooks.Place{Buffer: 7, Offset: uint64(2*layer+i) * 8 * uint64(n)}
			g.Leafs = append(g.Leafs, leaf)
		}
		k, v := int32(-1-3-2*layer), int32(-1-4-2*layer)
		first := int32(len(g.Nodes))
		g.Nodes = append(g.Nodes,
			ggmlhooks.Node{Op: "SET_ROWS", Computed: true, Src: []int32{first, -1, k}, Slots: 7},
			ggmlhooks.Node{Op: "SET_ROWS", Computed: true, Src: []int32{first, -2, v}, Slots: 7},
			ggmlhooks.Node{Op: "FLASH_ATTN_EXT", Computed: true, Src: []int32{first, k, v, -3}, Slots: 15})
	}
	return g
}

// stage plays executions to a recorder.
type stage struct {
	*ggmlhooks.Assembler
	r    *Recorder
	t    *testing.T
	ctx  uint32 // which decodes
	exec uint64
	ns   int64
	ops  []string
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	s := &stage{t: t}
	if o.Operation == nil {
		o.Operation = func(op *kvcache.Operation) error {
			s.ops = append(s.ops, fmt.Sprintf("%s %s %d[%d,%d) %d", op.Action, op.Reason, op.Seq, op.PosFirst,
				op.PosEnd, op.Layers[1].K+op.Layers[1].V))
			return nil
		}
	}
	var err error
	if s.r, err = NewRecorder(o); err != nil {
		t.Fatal(err)
	}
	s.Assembler = ggmlhooks.NewAssembler(0, s.r)
	return s
}

func (s *stage) tick() int64 { s.ns += 10; return s.ns }

// decode computes tokens of sequence 0 from position pos on, in cells from first on.
func (s *stage) decode(pos, first, n, status int, provisional bool) error {
	s.t.Helper()
	g := graphOf(n, 16)
	s.exec++
	g.Ctx, g.ID = s.ctx, g.ID+uint64(s.ctx)<<32
	call := &ggmlhooks.Call{Number: s.exec, Ctx: s.ctx, MonoNS: s.tick(), Read: true}
	e := &ggmlhooks.Exec{Number: s.exec, Graph: g.ID, Call: s.exec, Ctx: s.ctx, MonoNS: s.tick(),
		Provisional: provisional}
	cells := ggmlhooks.Input{Exec: s.exec, Graph: g.ID, Kind: ggmlhooks.InputCells}
	mask := ggmlhooks.Input{Exec: s.exec, Graph: g.ID, Kind: ggmlhooks.InputMask, Leaf: 2}
	for i := range n {
		call.Rows = append(call.Rows, ggmlhooks.CallRow{Token: int32(i), Pos: int32(pos + i), Seqs: []int32{0},
			Output: i == n-1})
		e.Tokens, e.Pos = append(e.Tokens, int32(i)), append(e.Pos, int32(pos+i))
		cells.Values = append(cells.Values, int64(first+i))
		mask.Ranges = append(mask.Ranges, ggmlhooks.CellRange{Row: int32(i), First: 0, End: int32(first + i + 1)})
	}
	values := cells
	values.Leaf = 1
	times := &ggmlhooks.Times{Exec: s.exec, Graph: g.ID, BeginNS: s.ns + 1,
		Nodes: []ggmlhooks.NodeTime{{Node: 2, DoneNS: 2, LeftNS: 3}, {Node: 5, DoneNS: 5, LeftNS: 6}}}
	return errors.Join(s.Graph(g), s.Call(call), s.Exec(e), s.Input(&cells), s.Input(&values), s.Input(&mask),
		s.Times(times),
		s.ExecEnd(ggmlhooks.ExecEnd{Number: s.exec, MonoNS: s.tick(), Status: status}))
}

func (s *stage) wants(what string, want ...string) {
	s.t.Helper()
	if fmt.Sprintf("%q", s.ops) != fmt.Sprintf("%q", want) {
		s.t.Errorf("%s: %q, want %q", what, s.ops, want)
	}
	s.ops = nil
}

// TestSetup: of what is thrown away nothing is recorded, and nothing counts; what is not comes when that is known.
func TestSetup(t *testing.T) {
	s := newStage(t, Options{})
	clear := &ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRemove, Seq: -1, First: 0, End: -1}
	if err := errors.Join(s.decode(0, 0, 3, 0, true), s.SeqChange(clear),
		s.Resolve(ggmlhooks.Resolve{Exec: 1, Discarded: true})); err != nil {
		t.Fatal(err)
	}
	s.wants("a warm-up")
	if shot := s.r.Snapshot(); shot.Lifetime.Count != 0 || shot.Reuse.Requests != 0 || shot.Caches[0].Used != 0 {
		t.Errorf("%+v", shot)
	}
	if err := errors.Join(s.decode(0, 0, 2, 0, true),
		s.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRemove, Seq: 0, First: 1, End: -1})); err != nil {
		t.Fatal(err)
	}
	s.wants("undecided")
	if err := errors.Join(s.Resolve(ggmlhooks.Resolve{Exec: 2}), s.decode(1, 1, 1, 0, false)); err != nil {
		t.Fatal(err)
	}
	s.wants("the run", "allocate  0[0,2) 32", "evict seq_rm 0[1,2) 16", "allocate  0[1,2) 16")
	if shot := s.r.Snapshot(); shot.Reuse.Requests != 2 || shot.Caches[0].Used != 2 || shot.Reuse.Needed != 4 ||
		shot.Reuse.Reused != 1 {
		t.Errorf("%+v", shot)
	}
}

// TestTooMuchUndecided: what had to be recorded before it was decided is reported; if it is discarded, its cells are
// gone without an end, and the run begins with empty caches.
func TestTooMuchUndecided(t *testing.T) {
	s := newStage(t, Options{})
	s.Assembler = ggmlhooks.NewAssembler(1, s.r)
	clear := &ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRemove, Seq: 0, First: 1, End: -1}
	if err := errors.Join(s.decode(0, 0, 2, 0, true), s.SeqChange(clear),
		s.Resolve(ggmlhooks.Resolve{Exec: 1, Discarded: true}),
		s.decode(0, 0, 1, 0, false)); err != nil {
		t.Fatal(err)
	}
	s.wants("all of it", "allocate  0[0,2) 32", "evict seq_rm 0[1,2) 16", "allocate  0[0,1) 16")
	if shot := s.r.Snapshot(); shot.Caches[0].Used != 1 || shot.Caches[0].Sequences[0].Cells != 1 {
		t.Errorf("%+v", shot)
	}
}

// TestFreedUndecided: of a program that frees its caches before anything decided whether it was set-up, the lives are
// recorded when the recording ends, as those of the run.
func TestFreedUndecided(t *testing.T) {
	var out bytes.Buffer
	s := newStage(t, Options{Out: &out})
	if err := errors.Join(s.decode(0, 0, 3, 0, true),
		s.BufferEnd(ggmlhooks.BufferEnd{ID: 7, MonoNS: 500})); err != nil {
		t.Fatal(err)
	}
	s.wants("undecided")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.wants("the run", "allocate  0[0,3) 48")
	if rows, _, last := readTable(t, out.Bytes()); len(rows) != 4 || len(last.Freed) != 1 || last.Freed[0].Used != 3 {
		t.Errorf("%d rows, %+v", len(rows), last)
	}
}

// TestDraftModelReuse: what a draft model computes of a prompt is not another prompt.
func TestDraftModelReuse(t *testing.T) {
	s := newStage(t, Options{})
	cut := &ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRemove, First: 2, End: -1}
	for range 2 { // both models compute a prompt; the second one finds two cells
		if err := s.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqSampler}); err != nil {
			t.Fatal(err)
		}
		for s.ctx = range 2 {
			pos := 0
			if s.exec > 1 {
				pos = 2
			}
			cut.Ctx = s.ctx
			if err := errors.Join(s.SeqChange(cut), s.decode(pos, pos, 4-pos, 0, false)); err != nil {
				t.Fatal(err)
			}
		}
		s.ctx = 0
	}
	if got := s.r.Snapshot().Reuse; got.Requests != 2 || got.Hits != 1 || got.Needed != 8 || got.Reused != 2 {
		t.Errorf("%+v", got)
	}
}

// TestFailed: a micro-batch that failed is removed by llama.cpp, and so here.
func TestFailed(t *testing.T) {
	s := newStage(t, Options{})
	if err := errors.Join(s.decode(0, 0, 4, 0, false), s.decode(4, 4, 3, 2, false)); err != nil {
		t.Fatal(err)
	}
	s.wants("a failure", "allocate  0[0,4) 64", "allocate  0[4,7) 48", "evict seq_rm 0[4,7) 48")
	if g := s.r.Snapshot().Caches[0]; g.Used != 4 || g.Sequences[0].PosMax != 3 {
		t.Errorf("%+v", g)
	}
}

// TestLoaded: cells that a state was loaded into are reported when a token may read them, so that what was allocated
// less what was evicted is what is in use.
func TestLoaded(t *testing.T) {
	var all [2]int64
	used := 0
	s := newStage(t, Options{})
	count := s.r.out.operation
	s.r.out.operation = func(op *kvcache.Operation) error {
		switch all = [2]int64{op.AllReused, op.AllNeeded}; op.Action {
		case kvcache.Allocate:
			used += op.Cells
		case kvcache.Evict:
			used -= op.Cells
		}
		return count(op)
	}
	if err := errors.Join(s.decode(0, 0, 3, 0, false), s.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRestore}),
		s.decode(5, 5, 2, 0, false)); err != nil {
		t.Fatal(err)
	}
	s.wants("a state", "allocate  0[0,3) 48", "evict seq_rm 0[0,3) 48", "allocate  0[5,7) 32",
		"allocate loaded 0[-2,-2) 80")
	g := s.r.Snapshot().Caches[0]
	if g.Used != 7 || used != 7 || all != [2]int64{5, 10} {
		t.Errorf("%d in use, by the operations %d; reused and needed %d", g.Used, used, all)
	}
	if a := g.Attended; a == nil || *a != (kvcache.Attended{Graphs: 1, OfGraphs: 2, Cells: a.Cells, Readable: 3}) {
		t.Errorf("%+v, and one graph of two came before the state", a)
	}
}

// TestKilled: of a program that freed nothing, the snapshot is that of the end of the recording, also after Close.
func TestKilled(t *testing.T) {
	var out bytes.Buffer
	s := newStage(t, Options{Out: &out})
	if err := errors.Join(s.decode(0, 0, 3, 0, false), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, _, last := readTable(t, out.Bytes())
	if shot := s.r.Snapshot(); len(shot.Caches) != 1 || shot.Caches[0].Used != 3 ||
		shot.Caches[0].Sequences[0].Cells != 3 || !reflect.DeepEqual(shot.Caches, last.Caches) {
		t.Errorf("%+v, and the file says %+v", shot.Caches, last.Caches)
	}
}

// TestWoken: of a program that frees its context and makes another, as a server that sleeps, the newest cache is the
// latest, also when it is freed.
func TestWoken(t *testing.T) {
	s := newStage(t, Options{UnixOffset: 1000})
	for s.ctx = range 3 {
		if err := errors.Join(s.decode(0, 0, 3, 0, false),
			s.BufferEnd(ggmlhooks.BufferEnd{ID: 7, MonoNS: s.tick()})); err != nil {
			t.Fatal(err)
		}
		shot := s.r.Snapshot()
		if got := shot.Latest(); len(got) != 1 || got[0].Ctx != s.ctx || got[0].FreedUnixNS != 1000+s.ns ||
			len(shot.Freed) != int(s.ctx)+1 || shot.MadeUnixNS >= got[0].FreedUnixNS {
			t.Errorf("%+v", shot)
		}
	}
}

// TestIntervals: times are those of the measured intervals in which layers were computed; layers that share them
// share nothing else.
func TestIntervals(t *testing.T) {
	var out bytes.Buffer
	s := newStage(t, Options{Out: &out, Block: 4, UnixOffset: 1000})
	if err := errors.Join(s.decode(0, 0, 6, 0, false), s.decode(6, 6, 1, 0, false),
		s.BufferEnd(ggmlhooks.BufferEnd{ID: 7, MonoNS: 500}), s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	rows, texts, last := readTable(t, out.Bytes())
	if len(rows) != 8 || len(last.Freed) != 1 || last.Freed[0].Used != 7 {
		t.Fatalf("%d rows, %+v", len(rows), last)
	}
	for i, row := range rows {
		begin := int64(1000 + 20 + 1) // of the first graph
		interval := 3 * row["layer"]  // after layer 0's last node, which was timed
		second := int64(1000 + 50 + 1)
		if row["first_write_ns"] != begin+interval || row["first_read_ns"] != begin+interval ||
			row["last_read_ns"] != second+interval || row["alloc_ns"] != 1020 {
			t.Errorf("row %d: %v", i, row)
		}
		writes, lastWrite := int64(4), begin+interval
		if row["block_id"] == 1 {
			writes, lastWrite = 3, second+interval
		}
		if row["n_writes"] != writes || row["last_write_ns"] != lastWrite ||
			row["n_reads"] != writes*2-row["block_id"] || row["censored"] != 1 || texts[i]["origin"] != "written" {
			t.Errorf("row %d: %v", i, row)
		}
	}
}

// TestErrors: what does not fit together is an error, as is what others say of operations and of writing.
func TestErrors(t *testing.T) {
	if _, err := NewRecorder(Options{Block: -1}); err == nil {
		t.Error("a block of -1 cells")
	}
	s := newStage(t, Options{})
	if err := s.Exec(&ggmlhooks.Exec{Graph: 9}); !errors.Is(err, ggmlhooks.ErrDesync) {
		t.Errorf("an unknown graph: %v", err)
	}
	if err := s.Input(&ggmlhooks.Input{Exec: 9}); !errors.Is(err, ggmlhooks.ErrDesync) {
		t.Errorf("an unknown execution: %v", err)
	}
	wrong := errors.New("full")
	s = newStage(t, Options{Operation: func(*kvcache.Operation) error { return wrong }})
	if err := s.decode(0, 0, 1, 0, false); !errors.Is(err, wrong) {
		t.Errorf("an operation: %v", err)
	}
	s = newStage(t, Options{Out: failing{wrong}})
	if err := s.decode(0, 0, 1, 0, false); err != nil {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, wrong) {
		t.Errorf("writing: %v", err)
	}
}

// failing is a disk that is full from its second byte on.
type failing struct{ err error }

func (f failing) Write(p []byte) (int, error) {
	if len(p) <= 4 {
		return len(p), nil // Parquet's first word
	}
	return 0, f.err
}

// steady makes a function that takes in an execution of one token, which may read all cells of a full cache.
func steady(tb testing.TB, cells int) func() {
	tb.Helper()
	recorder, err := NewRecorder(Options{})
	if err != nil {
		tb.Fatal(err)
	}
	r := ggmlhooks.NewAssembler(0, recorder)
	fill, one := graphOf(cells-1, cells), graphOf(1, cells)
	call := &ggmlhooks.Call{Number: 1, Rows: make([]ggmlhooks.CallRow, cells-1)}
	e := &ggmlhooks.Exec{Number: 1, Graph: fill.ID, Call: 1, Tokens: make([]int32, cells-1),
		Pos: make([]int32, cells-1)}
	in := &ggmlhooks.Input{Exec: 1, Kind: ggmlhooks.InputCells}
	for i := range e.Pos {
		call.Rows[i] = ggmlhooks.CallRow{Pos: int32(i), Seqs: []int32{0}}
		e.Pos[i], in.Values = int32(i), append(in.Values, int64(i))
	}
	if err := errors.Join(r.Graph(fill), r.Call(call), r.Exec(e), r.Input(in), r.ExecEnd(ggmlhooks.ExecEnd{Number: 1}),
		r.Graph(one)); err != nil {
		tb.Fatal(err)
	}
	call.Rows, e.Tokens, e.Pos, e.Graph = call.Rows[:1], e.Tokens[:1], []int32{int32(cells - 1)}, one.ID
	call.Rows[0].Pos = int32(cells - 1)
	in.Values = []int64{int64(cells - 1)}
	mask := &ggmlhooks.Input{Kind: ggmlhooks.InputMask, Leaf: 2,
		Ranges: []ggmlhooks.CellRange{{First: 0, End: int32(cells)}}}
	return func() {
		e.Number++
		call.Number, e.Call, in.Exec, mask.Exec = e.Number, e.Number, e.Number, e.Number
		if r.Call(call) != nil || r.Exec(e) != nil || r.Input(in) != nil || r.Input(mask) != nil ||
			r.ExecEnd(ggmlhooks.ExecEnd{Number: e.Number}) != nil {
			tb.Fatal("a step failed")
		}
	}
}

// TestAllocations: an execution takes one piece of memory per cache, its moment, and hardly more, whatever the
// number of cells.
func TestAllocations(t *testing.T) {
	testenv.NotWithRace(t)
	for _, cells := range []int{64, 8192} {
		if n := testing.AllocsPerRun(100, steady(t, cells)); n > 3 {
			t.Errorf("%d cells: %v allocations per execution", cells, n)
		}
	}
}

// BenchmarkDecode takes in such executions; blocks of 32.
func BenchmarkDecode(b *testing.B) {
	for _, cells := range []int{4096, 131072} {
		b.Run(fmt.Sprint(cells), func(b *testing.B) {
			step := steady(b, cells)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}
