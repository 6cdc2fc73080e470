package kvcache

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// journal is the lives that ended, and a clock that advances by one with each step.
type journal struct {
	t     *testing.T
	ended []*Life
	ns    int64
}

// of makes the journal that of a cache, which gets two parts.
func (j *journal) of(c *Cache) {
	c.Ended = func(l *Life) { j.ended = append(j.ended, l) }
	c.Parts = []Part{{0, K, 8}, {0, V, 8}}
	c.Refine([]string{"", ""})
}

func (j *journal) tick() int64 { j.ns++; return j.ns }

// world is a cache of attention with its journal.
type world struct {
	*Attention
	*journal
}

func newWorld(t *testing.T, s Shape) *world {
	w := &world{NewAttention(s), &journal{t: t}}
	w.journal.of(&w.Cache)
	return w
}

// put writes positions from first on of sequences into cells.
func (w *world) put(first int32, seqs []int32, cells ...int) {
	var rows []Row
	for i, at := range cells {
		rows = append(rows, Row{Cell: at, Pos: first + int32(i), Seqs: seqs})
	}
	ns := w.tick()
	if outside := w.Place(rows, ns); outside != 0 {
		w.t.Errorf("%d rows are outside", outside)
	}
	w.Wrote(0, rows, &Moment{NS: ns}, 1)
}

// story lists the lives that ended since it was called last.
func (j *journal) story() (text string) {
	for _, l := range j.ended {
		text += fmt.Sprintf("%d:%d[%d,%d)x%d@%d-%d %s;", l.Block, l.Seq, l.PosFirst, l.PosEnd, l.Cells, l.AllocNS,
			l.EndNS, l.Reason)
	}
	j.ended = nil
	return text
}

func (j *journal) wants(what, want string) {
	j.t.Helper()
	if got := j.story(); got != want {
		j.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestLives holds when lives begin and end, and why.
func TestLives(t *testing.T) {
	one, two := []int32{1}, []int32{2}
	w := newWorld(t, Shape{Size: 8, Block: 4})
	w.put(0, one, 0, 1, 2, 3, 4)                            // 1: two blocks
	w.put(5, one, 5)                                        // 2: joins the second
	w.Remove(1, 4, -1, w.tick())                            // 3
	w.wants("the end is removed", "1:1[4,6)x2@1-3 seq_rm;") //
	w.put(4, one, 4)                                        // 4: another life in the same block
	w.put(0, two, 5, 6)                                     // 5: another sequence in the block has a life of its own
	w.Copy(1, 3, -1, -1, w.tick())                          // 6
	w.Remove(1, -1, -1, w.tick())                           // 7: all is shared
	w.wants("shared cells go with their last sequence", "") //
	w.Keep(2, w.tick())                                     // 8
	w.wants("keep", "0:1[0,4)x4@1-8 seq_keep;1:1[4,5)x1@4-8 seq_keep;")
	if w.used != 2 || w.Count(2) != 2 || w.Count(3) != 0 || w.shared != 0 {
		t.Errorf("%d cells in use, %d shared", w.used, w.shared)
	}
	w.Move(2, 0, -1, func(pos int32) int32 { return pos + 10 }, w.tick()) // 9: a move is no end
	w.Move(2, 11, -1, func(pos int32) int32 { return pos / 2 }, w.tick())
	w.wants("moves", "")
	if low, high, known := w.Range(2); low != 5 || high != 10 || !known {
		t.Errorf("positions %d to %d", low, high)
	}
	w.Remove(-1, -1, -1, w.tick()) // 11
	w.wants("clear", "1:2[5,11)x2@5-11 clear;")
	w.put(0, one, 0)
	w.End(w.tick())
	w.wants("the end censors", "0:1[0,1)x1@12-13 ;")
	if w.used != 0 {
		t.Errorf("%d cells in use", w.used)
	}
}

// TestWindow: a cell that a window has slid past is overwritten, and what stands before it in its sequence goes
// with it. Cells of a block are overwritten one by one; each round is one life.
func TestWindow(t *testing.T) {
	one := []int32{1}
	w := newWorld(t, Shape{Kind: SWA, Size: 4, Block: 2})
	w.put(0, one, 0, 1, 2, 3) // 1
	w.put(4, one, 1)          // 2: takes the place of position 1, so 0 goes, too
	w.wants("overwritten", "0:1[0,2)x2@1-2 overwrite;")
	if low, high, _ := w.Range(1); low != 2 || high != 4 || w.used != 3 {
		t.Errorf("positions %d to %d in %d cells", low, high, w.used)
	}
	w.put(5, one, 0) // 3: joins position 4's life
	w.put(6, one, 2) // 4: takes that of 2, and 3 stays
	w.wants("part of a block", "")
	w.put(7, one, 3) // 5
	w.wants("the rest", "1:1[2,4)x2@1-5 overwrite;")
	w.Remove(1, -1, -1, w.tick())
	w.wants("at last", "0:1[4,6)x2@2-6 seq_rm;1:1[6,8)x2@4-6 seq_rm;")
	w.put(0, one, 0)
	w.put(0, one, 0) // the same position again is an update
	changes := w.TakeChanges()
	if last := changes[len(changes)-1]; last.Action != Update || w.story() != "" {
		t.Errorf("%+v", changes)
	}
}

// TestStreams: each sequence has cells of its own; a copy of a sequence overwrites the other's stream.
func TestStreams(t *testing.T) {
	w := newWorld(t, Shape{Streams: 2, Size: 4, Block: 4})
	w.put(0, []int32{0}, 0, 1)
	w.put(0, []int32{1}, 4, 5, 6)
	w.Keep(0, w.tick()) // 3: the other stream stays
	w.wants("keep", "")
	w.Copy(0, 1, -1, -1, w.tick()) // 4
	w.wants("copy", "1:1[0,3)x3@2-4 overwrite;")
	if low, high, known := w.Range(1); low != 0 || high != 1 || !known || w.used != 4 || w.shared != 0 {
		t.Errorf("positions %d to %d, %v, %d cells", low, high, known, w.used)
	}
	w.eachLife(func(l *Life) {
		touch := l.Touches[0]
		if copied := l.Block == 1; copied != (l.Origin == Copied) || touch.Writes != 2 || copied == (touch.Reads == 2) {
			t.Errorf("%+v", l)
		}
	})
}

// TestUnseen: what a state brought is not known, until tokens show it, and then its positions are not.
func TestUnseen(t *testing.T) {
	one := []int32{1}
	w := newWorld(t, Shape{Size: 8, Block: 4})
	w.put(0, one, 0, 1)
	w.Restore(1, w.tick()) // 2
	w.wants("a state replaces", "0:1[0,2)x2@1-2 seq_rm;")
	if w.Known(1) || !w.Known(2) {
		t.Error("nobody can know what was loaded")
	}
	w.put(3, one, 3) // 3
	var cells Bitmap
	cells.Reset(8)
	cells.Add(0, 2)
	cells.Add(3, 5)
	if !w.NeedsProof(1, cells.Len(), false) || w.Confirm(1, &cells, false, w.tick()) != 3 { // 4: 0, 1 and 4 are found
		t.Error("cells are found by what a token may read")
	}
	if _, _, known := w.Range(1); known || w.Count(1) != 4 {
		t.Errorf("%d cells", w.Count(1))
	}
	w.Remove(1, 2, -1, w.tick()) // 5: position 3 goes; whether the others did is in doubt
	w.wants("what is known goes", "0:1[3,4)x1@3-5 seq_rm;")
	if !w.Doubtful(1) || w.used != 3 {
		t.Errorf("%d cells in use", w.used)
	}
	cells.Reset(8)
	cells.Add(0, 2)
	w.Confirm(1, &cells, false, w.tick()) // 6: 4 is gone, and went when it was removed
	w.wants("what a token does not read is gone", "1:1[-2,-2)x1@0-5 seq_rm;")
	if w.Doubtful(1) || w.used != 2 {
		t.Errorf("%d cells in use", w.used)
	}
	w.Remove(1, -1, -1, w.tick())
	if low, _, known := w.Range(1); !known || low != -1 || w.used != 0 {
		t.Error("all of it is gone")
	}
	w.Restore(-1, w.tick())
	if w.Known(0) || w.Gauge(0).Whole {
		t.Error("any sequence may have cells")
	}
	w.Remove(2, -1, -1, w.tick())
	if !w.Known(2) || w.Known(3) {
		t.Error("one is known to have none")
	}
}

// TestStates: a state goes on in its cell, moves with its sequence, is shared, and parts again.
func TestStates(t *testing.T) {
	w := struct {
		*States
		*journal
	}{NewStates(Shape{Kind: Recurrent, Size: 3}), &journal{t: t}}
	w.journal.of(&w.Cache)
	step := func(head int, sources []int64, rows ...StateRow) {
		t.Helper()
		if w.Place(head, rows, sources, w.tick()) != 0 {
			t.Error("outside")
		}
	}
	step(0, []int64{0, 0}, StateRow{[]int32{0}, 0, 4}, StateRow{[]int32{1}, 0, 4})
	step(0, []int64{0, 1}, StateRow{[]int32{0}, 5, 5}, StateRow{[]int32{1}, 5, 5})
	w.Copy(1, 2, -1, -1, w.tick())
	if w.used != 2 || w.shared != 1 {
		t.Errorf("%d states, %d shared", w.used, w.shared)
	}
	step(2, []int64{1}, StateRow{[]int32{2}, 6, 6}) // parts from sequence 1
	if low, high, _ := w.Range(2); low != 6 || high != 6 || w.used != 3 || w.shared != 0 {
		t.Errorf("%d to %d, %d states", low, high, w.used)
	}
	step(0, []int64{2, 1, 0}, StateRow{[]int32{2}, 7, 7}) // 2 and 0 change places
	if low, _, _ := w.Range(0); low != 5 || w.Cache.of[2].Block != 2 || !w.cells[0].seqs.Has(2) {
		t.Errorf("sequence 0 at %d", low)
	}
	w.wants("moves are no ends", "")
	w.Remove(0, -1, -1, w.tick())
	w.wants("removed", "2:0[0,6)x1@1-6 seq_rm;")
	w.Keep(2, w.tick())
	w.wants("kept", "1:1[0,6)x1@1-7 seq_keep;")
	w.Remove(-1, -1, -1, w.tick())
	w.wants("cleared", "0:2[6,8)x1@4-8 clear;")
}

// TestGroups: parts that are treated alike share one record, and keep what they had when they part.
func TestGroups(t *testing.T) {
	w := newWorld(t, Shape{Size: 8, Block: 2})
	w.put(0, []int32{0}, 0, 1, 2)
	w.Parts = append(w.Parts, Part{1, K, 8})
	if !w.Refine([]string{"a", "b", "c"}) || len(w.Groups()) != 3 || w.Refine([]string{"x", "x", "x"}) {
		t.Fatalf("%v", w.Groups())
	}
	m := &Moment{NS: 50, Writes: []uint32{1, 2, 3}, Reads: []uint32{4, 5, 6}, Shift: 1}
	var all Bitmap
	all.Reset(8)
	all.Add(1, 3)
	w.Read(1, 0, &all, m, 2)
	w.eachLife(func(l *Life) {
		if l.Touches[0].Writes != l.Touches[1].Writes || l.Touches[0].Reads != 0 || l.Touches[1].Reads != 2 ||
			l.Touches[2].Writes != 0 {
			t.Errorf("%+v", l.Touches)
		}
		if at := l.Touches[1].FirstRead; at.Read(1) != 60 || at.Write(2) != 56 || at.Read(9) != 50 ||
			l.Touches[0].FirstRead.Read(0) != 0 {
			t.Errorf("%+v", at)
		}
	})
}

// TestCounts: after many random steps, what is counted is what the cells say, and every life that began goes on or
// ended.
func TestCounts(t *testing.T) {
	free := int64(0)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t, Shape{Size: 40, Streams: 1 + int(seed%2)*3, Block: 1 + r.IntN(9)})
		cells := int64(0)
		for range 400 {
			seq, other := r.Int32N(4), r.Int32N(4)
			first, end := r.Int32N(20), r.Int32N(40)-5
			switch r.IntN(9) {
			case 0:
				w.Remove(seq, first, end, w.tick())
			case 1:
				w.Copy(seq, other, -1, -1, w.tick())
			case 2:
				w.Keep(seq, w.tick())
			case 3:
				delta := r.Int32N(9) - 4
				w.Move(seq, first, end, func(pos int32) int32 { return pos + delta }, w.tick())
			case 4:
				w.Restore(seq, w.tick())
			case 5:
				var b Bitmap
				b.Reset(40)
				b.Add(int(first), int(end))
				w.Confirm(seq, &b, r.IntN(2) == 0, w.tick())
			default:
				w.Place([]Row{{Cell: w.streamOf(seq)*40 + r.IntN(40), Pos: first, Seqs: []int32{seq}}}, w.tick())
			}
			w.check()
		}
		free += w.attended.Free
		w.End(w.tick())
		for _, l := range w.ended {
			cells += int64(l.Cells)
			if l.alive != 0 && l.Reason != NotEvicted || l.EndNS < l.AllocNS || l.CellEnd-l.CellFirst < l.Cells ||
				l.Cells < 1 {
				t.Fatalf("%+v", l)
			}
		}
		if cells == 0 {
			t.Error("nothing lived")
		}
	}
	if free == 0 {
		t.Error("attention read no free cell")
	}
}

// checkAttended counts the free cells below the last one in use by looking at all of them.
func (w *world) checkAttended() {
	w.t.Helper()
	if !w.Gauge(0).Whole {
		return
	}
	for stream := range w.Streams {
		width := w.Size
		if stream%2 == 1 {
			width *= 2 // there are no more
		}
		cells, free, last := w.cells[stream*w.Size:][:w.Size], 0, -1
		for i := range cells {
			if !cells[i].free() {
				last = i
			}
		}
		for i := range last + 1 {
			if cells[i].free() {
				free++
			}
		}
		seen := &Bitmap{}
		seen.Reset(w.Size)
		seen.Add(0, last/2)
		before := w.attended
		w.Attend([]int{stream}, width, map[int]*Bitmap{stream: seen})
		want := Attended{before.Graphs + 1, before.OfGraphs + 1, before.Cells + int64(w.Size),
			before.Readable + int64(max(0, last/2)), before.Free + int64(free)}
		if w.attended != want {
			w.t.Fatalf("stream %d: %+v, want %+v", stream, w.attended, want)
		}
	}
}

func (w *world) check() {
	w.t.Helper()
	used, shared, counts, alive := 0, 0, [maxSeqs]int{}, map[*Life]int{}
	for i := range w.cells {
		cell := &w.cells[i]
		if cell.free() != cell.seqs.empty() || cell.free() != (w.Cache.of[i] == nil) {
			w.t.Fatalf("cell %d: %+v", i, cell)
		}
		if cell.free() {
			continue
		}
		used++
		if cell.seqs.Len() > 1 {
			shared++
		}
		for seq := range cell.seqs.all() {
			counts[seq]++
		}
		alive[w.Cache.of[i]]++
	}
	w.checkAttended()
	if used != w.used || shared != w.shared || counts != w.counts {
		w.t.Fatalf("%d used, %d shared, counted %d and %d", used, shared, w.used, w.shared)
	}
	n := 0
	w.eachLife(func(l *Life) {
		n++
		if alive[l] != l.alive {
			w.t.Fatalf("%d cells alive, counted %d", alive[l], l.alive)
		}
	})
	if n != len(alive) {
		w.t.Fatalf("%d lives, %d have cells", n, len(alive))
	}
}
