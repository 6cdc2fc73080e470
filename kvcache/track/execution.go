package track

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// Hot path: per execution and cache one pass over the blocks that its tokens may read and the cells that they
// write, and at most three allocations.

// execution is one micro-batch.
type execution struct {
	*ggmlhooks.Execution
	ctx     *cacheContext
	g       *described
	doubts  *kvcache.Doubts
	rows    []kvcache.Row           // its tokens, without cells yet
	bitmaps map[int]*kvcache.Bitmap // by stream, used again
	streams []int                   // of which the bitmaps hold something now
	placed  []kvcache.Row           // used again
}

// begin makes it that of an execution, in its old memory.
func (x *execution) begin(e *ggmlhooks.Execution, ctx *cacheContext, g *described) {
	x.Execution, x.ctx, x.g, x.rows = e, ctx, g, x.rows[:0]
	for i := range e.Rows {
		row := &e.Rows[i]
		pos := row.Pos
		if pos < 0 {
			pos = kvcache.PosUnknown
		}
		x.rows = append(x.rows, kvcache.Row{Cell: -1, Pos: pos, Seqs: row.Seqs})
	}
}

// cells are those that a leaf says are written, or read states.
func (x *execution) cells(leaf int) (cells []int64) {
	for i := range x.Inputs {
		switch in := &x.Inputs[i]; {
		case in.Leaf != leaf || in.Kind == ggmlhooks.InputMask:
		case cells == nil:
			cells = in.Values
		default:
			cells = append(cells[:len(cells):len(cells)], in.Values...)
		}
	}
	return cells
}

// ranges are those of a mask.
func (x *execution) ranges(leaf int) (ranges []ggmlhooks.CellRange) {
	for i := range x.Inputs {
		switch in := &x.Inputs[i]; {
		case in.Leaf != leaf || in.Kind != ggmlhooks.InputMask:
		case ranges == nil:
			ranges = in.Ranges
		default:
			ranges = append(ranges[:len(ranges):len(ranges)], in.Ranges...)
		}
	}
	return ranges
}

// apply does to the caches what the execution did. If it failed, llama.cpp removed of the first sequence of each row
// its position and all after it.
func (x *execution) apply(out *journal) {
	failed := x.Failed()
	x.ctx.requests.begin(x)
	for _, w := range x.g.works {
		if len(w.groups) != len(w.Groups()) {
			w.regroup()
		}
		switch {
		case x.g.Tokens == 0: // a shift of positions reads and writes all keys
			var shifted []int
			for g := range w.groups {
				if w.groups[g].shifted {
					shifted = append(shifted, g)
				}
			}
			w.Rewrote(shifted, w.moment(x))
		case w.states != nil:
			x.writeStates(w)
		default:
			x.attend(w, failed)
		}
		out.report(x.ctx, w.tracked, x.MonoNS, x.Number, w.times(x.g.Tokens == 0))
	}
	if !failed {
		return
	}
	lowest := map[int32]int32{}
	for i := range x.rows {
		if row := &x.rows[i]; len(row.Seqs) > 0 {
			if pos, ok := lowest[row.Seqs[0]]; !ok || row.Pos < pos {
				lowest[row.Seqs[0]] = row.Pos
			}
		}
	}
	for seq, pos := range lowest {
		for _, t := range x.ctx.caches {
			t.program.Remove(seq, pos, -1, x.End.MonoNS)
			out.report(x.ctx, t, x.End.MonoNS, x.Number, nil)
		}
	}
}

// attend notes which cells of a cache of keys and values the tokens write, and then which ones they may read.
func (x *execution) attend(w *work, failed bool) {
	cells := x.cells(w.index)
	if len(cells) != len(x.rows) {
		x.doubts.Unplaced++
		if !failed {
			w.attention.Attend(nil, 0, nil)
		}
		return
	}
	for _, other := range w.others {
		for i, cell := range x.cells(other) {
			if i >= len(cells) || cell != cells[i] {
				x.doubts.Differ++
			}
		}
	}
	x.placed = append(x.placed[:0], x.rows...)
	for i := range x.placed {
		x.placed[i].Cell = int(cells[i])
		if len(x.placed[i].Seqs) == 0 {
			x.doubts.Unknown++
		}
	}
	x.doubts.Outside += int64(w.attention.Place(x.placed, x.MonoNS))
	m := w.moment(x)
	for g := range w.groups {
		if n := w.groups[g].writes; n > 0 {
			w.Wrote(g, x.placed, m, n)
		}
	}
	if failed {
		return
	}
	confirmed, isCounted := map[int]bool{}, false
	for g := range w.groups {
		for _, mask := range w.groups[g].masks {
			if !confirmed[mask.leaf] {
				confirmed[mask.leaf] = true
				x.confirm(w, mask.leaf)
			}
			x.readable(w, mask.leaf, nil)
			for _, stream := range x.streams {
				w.Read(g, stream, x.bitmaps[stream], m, mask.times)
			}
			if !isCounted { // all layers read the same
				w.attention.Attend(x.streams, int(x.g.Leafs[mask.leaf].NE[0]), x.bitmaps)
				isCounted = true
			}
		}
	}
}

// readable gathers the cells that tokens may read by a mask, per stream; of all tokens, or of some.
func (x *execution) readable(w *work, mask int, rows map[int32]bool) {
	x.streams = x.streams[:0]
	var last *kvcache.Bitmap
	lastStream := -1
	for _, span := range x.ranges(mask) {
		if int(span.Row) >= len(x.placed) || rows != nil && !rows[span.Row] {
			continue
		}
		stream := x.placed[span.Row].Cell / w.Size
		if stream != lastStream {
			if last = x.bitmaps[stream]; last == nil {
				last = &kvcache.Bitmap{}
				x.bitmaps[stream] = last
			}
			if !slices.Contains(x.streams, stream) {
				last.Reset(w.Size)
				x.streams = append(x.streams, stream)
			}
			lastStream = stream
		}
		last.Add(int(span.First), int(span.End))
	}
}

// confirm holds what is known of each sequence against what its last token in the micro-batch may read.
func (x *execution) confirm(w *work, mask int) {
	last := map[int32]int32{}
	for i := range x.placed {
		if seqs := x.placed[i].Seqs; len(seqs) > 0 {
			last[seqs[0]] = int32(i)
		}
	}
	count := map[int32]int{}
	for _, span := range x.ranges(mask) {
		count[span.Row] += int(span.End - span.First)
	}
	for seq, row := range last {
		n := count[row]
		if !w.windowed && w.Kind == kvcache.Base {
			x.ctx.requests.reveal(x, seq, n)
		}
		if !w.attention.NeedsProof(seq, n, w.windowed) {
			continue
		}
		if n < w.Count(seq) && w.Known(seq) && !w.windowed && !w.attention.Doubtful(seq) {
			w.windowed = true // it does not see all that its sequence has
		}
		x.readable(w, mask, map[int32]bool{row: true})
		if stream := x.placed[row].Cell / w.Size; slices.Contains(x.streams, stream) {
			cells := x.bitmaps[stream]
			x.doubts.Found += int64(w.attention.Confirm(seq, cells, w.windowed, x.MonoNS))
		}
	}
}

// writeStates notes which states of recurrent layers are read and replaced.
func (x *execution) writeStates(w *work) {
	n := x.g.states
	if x.g.head < 0 || n == 0 || len(x.rows)%n != 0 {
		x.doubts.Unplaced++
		return
	}
	each := len(x.rows) / n
	rows := make([]kvcache.StateRow, n)
	for i := range rows {
		begin, end := &x.rows[i*each], &x.rows[(i+1)*each-1]
		rows[i] = kvcache.StateRow{Seqs: begin.Seqs, First: begin.Pos, Pos: end.Pos}
		if len(begin.Seqs) == 0 {
			x.doubts.Unknown++
		}
	}
	sources := x.cells(x.g.copied)
	x.doubts.Outside += int64(w.states.Place(x.g.head, rows, sources, x.MonoNS))
	m := w.moment(x)
	for g := range w.groups {
		w.states.Touch(g, x.g.head, n, m, w.groups[g].writes, w.groups[g].reads)
	}
}

// intervalOf is when the measured interval began in which a node was computed, after the graph's beginning.
func (x *execution) intervalOf(node int32) int64 {
	// The interval of a timed node begins with the one before, too.
	at, _ := slices.BinarySearchFunc(x.Times.Nodes, node, func(t ggmlhooks.NodeTime, n int32) int {
		return int(t.Node) - int(n)
	})
	if at == 0 || node < 0 {
		return 0
	}
	return max(x.Times.Nodes[at-1].LeftNS, 0)
}
