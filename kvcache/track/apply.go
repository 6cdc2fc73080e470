package track

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// apply takes in what an execution did to caches. failed: it did not end well, and llama.cpp removed its positions
// again.
func (r *Recorder) apply(now *execution, failed bool) {
	x := now.ctx
	if now.g.works == nil {
		now.g.works = x.works(r, now.g.plan)
	}
	r.request(now)
	for _, w := range now.g.works {
		if len(w.groups) != len(w.Groups()) {
			w.regroup()
		}
		switch {
		case now.g.Tokens == 0:
			r.shifted(now, w)
		case w.Kind == kvcache.Recurrent:
			r.states(now, w)
		default:
			r.attention(now, w, failed)
		}
		r.report(x, w.tracked, now.MonoNS, now.Number, w.times(now.g.Tokens == 0))
	}
	if failed {
		r.undo(now)
	}
}

// undo removes what llama.cpp removes behind a micro-batch that failed: of the first sequence of each row its
// position and all behind it.
func (r *Recorder) undo(now *execution) {
	lowest := map[int32]int32{}
	for i := range now.rows {
		if row := &now.rows[i]; len(row.Seqs) > 0 {
			if pos, ok := lowest[row.Seqs[0]]; !ok || row.Pos < pos {
				lowest[row.Seqs[0]] = row.Pos
			}
		}
	}
	for seq, pos := range lowest {
		for _, t := range now.ctx.caches {
			t.program.Remove(seq, pos, -1, now.ctx.lastNS)
			r.report(now.ctx, t, now.ctx.lastNS, now.Number, nil)
		}
	}
}

// request counts what the prompts of requests find in the cache, before their first tokens are written.
func (r *Recorder) request(now *execution) {
	x := now.ctx
	for _, b := range now.Begun {
		x.requests[b.Seq] = &request{}
		first := int32(-1)
		for i := range now.rows {
			if row := &now.rows[i]; len(row.Seqs) > 0 && has(row.Seqs, b.Seq) {
				first = row.Pos
				break
			}
		}
		_, high, known := x.memory.Range(b.Seq)
		if first < 0 || first > 0 && (!known || first > high+1) { // what it follows was loaded with a state, reported or not
			x.requests[b.Seq].unknown = true
			r.total.reuse.Unknown++
			continue
		}
		r.total.reuse.Requests++
		if first == 0 {
			continue
		}
		q := x.requests[b.Seq]
		q.reused = int64(first)
		q.needed = q.reused
		r.total.reuse.Hits++
		r.total.reuse.Reused += q.reused
		r.total.reuse.Needed += q.reused
		if last, ok := x.touched[b.Seq]; ok {
			r.total.reuse.Gap.Add(now.MonoNS - last)
		}
	}
	for i := range now.rows {
		for _, seq := range now.rows[i].Seqs {
			if q := x.requests[seq]; q != nil && now.Rows[i].Phase == ggmlhooks.PhasePrefill {
				q.needed++
				if !q.unknown {
					r.total.reuse.Needed++
				}
			}
		}
	}
}

func has(seqs []int32, seq int32) bool { return slices.Contains(seqs, seq) }

// shifted notes that keys were moved to other positions: a graph without tokens reads and writes them all.
func (r *Recorder) shifted(now *execution, w *work) {
	var shifted []int
	for g := range w.groups {
		if w.groups[g].shifted {
			shifted = append(shifted, g)
		}
	}
	w.Rewrote(shifted, w.moment(now))
}

// attention notes which cells of a cache of keys and values the tokens write, and then which ones they may read.
func (r *Recorder) attention(now *execution, w *work, failed bool) {
	cells := now.cells(w.index)
	if len(cells) != len(now.rows) {
		r.total.doubts.Unplaced++
		return
	}
	for _, other := range w.others {
		for i, cell := range now.cells(other) {
			if i >= len(cells) || cell != cells[i] {
				r.total.doubts.Differ++
			}
		}
	}
	now.placed = append(now.placed[:0], now.rows...)
	for i := range now.placed {
		now.placed[i].Cell = int(cells[i])
		if len(now.placed[i].Seqs) == 0 {
			r.total.doubts.Unknown++
		}
	}
	r.total.doubts.Outside += int64(w.attention.Place(now.placed, now.MonoNS))
	m := w.moment(now)
	for g := range w.groups {
		if n := w.groups[g].writes; n > 0 {
			w.Wrote(g, now.placed, m, n)
		}
	}
	if failed {
		return
	}
	confirmed := map[int]bool{}
	for g := range w.groups {
		for _, mask := range w.groups[g].masks {
			if !confirmed[mask.leaf] {
				confirmed[mask.leaf] = true
				r.confirm(now, w, mask.leaf)
			}
			r.readable(now, w, mask.leaf, nil)
			for _, stream := range now.streams {
				w.Read(g, stream, now.bitmaps[stream], m, mask.times)
			}
		}
	}
}

// readable gathers the cells that tokens may read by a mask, per stream; of all tokens, or of some.
func (r *Recorder) readable(now *execution, w *work, mask int, rows map[int32]bool) {
	now.streams = now.streams[:0]
	var last *kvcache.Bitmap
	lastStream := -1
	for _, span := range now.ranges(mask) {
		if int(span.Row) >= len(now.placed) || rows != nil && !rows[span.Row] {
			continue
		}
		stream := now.placed[span.Row].Cell / w.Size
		if stream != lastStream {
			if last = now.bitmaps[stream]; last == nil {
				last = &kvcache.Bitmap{}
				now.bitmaps[stream] = last
			}
			if !slices.Contains(now.streams, stream) {
				last.Reset(w.Size)
				now.streams = append(now.streams, stream)
			}
			lastStream = stream
		}
		last.Add(int(span.First), int(span.End))
	}
}

// confirm holds what is known of each sequence against what its last token in the micro-batch may read.
func (r *Recorder) confirm(now *execution, w *work, mask int) {
	last := map[int32]int32{}
	for i := range now.placed {
		if seqs := now.placed[i].Seqs; len(seqs) > 0 {
			last[seqs[0]] = int32(i)
		}
	}
	count := map[int32]int{}
	for _, span := range now.ranges(mask) {
		count[span.Row] += int(span.End - span.First)
	}
	for seq, row := range last {
		n := count[row]
		if !w.windowed && w.Kind == kvcache.Base {
			r.reveal(now, seq, n)
		}
		if !w.attention.NeedsProof(seq, n, w.windowed) {
			continue
		}
		if n < w.Count(seq) && w.Known(seq) && !w.windowed && !w.attention.Doubtful(seq) {
			w.windowed = true // it does not see all that its sequence has
		}
		r.readable(now, w, mask, map[int32]bool{row: true})
		if stream := now.placed[row].Cell / w.Size; slices.Contains(now.streams, stream) {
			cells := now.bitmaps[stream]
			r.total.doubts.Found += int64(w.attention.Confirm(seq, cells, w.windowed, now.MonoNS))
		}
	}
}

// reveal finds what a request of which that was not known found in the cache: of the n cells that its last token
// may read, those that this execution, its first, does not write.
func (r *Recorder) reveal(now *execution, seq int32, n int) {
	q := now.ctx.requests[seq]
	if q == nil || !q.unknown || !slices.ContainsFunc(now.Begun, func(b ggmlhooks.RequestBegin) bool { return b.Seq == seq }) {
		return
	}
	found := int64(n)
	for i := range now.rows {
		if has(now.rows[i].Seqs, seq) {
			found--
		}
	}
	if found < 0 {
		return
	}
	q.unknown, q.reused, q.needed = false, found, q.needed+found
	u := &r.total.reuse
	u.Unknown--
	u.Requests++
	u.Reused += found
	u.Needed += q.needed
	if found > 0 {
		u.Hits++
	}
}

// states notes which states of recurrent layers are read and replaced.
func (r *Recorder) states(now *execution, w *work) {
	n := now.g.states
	if now.g.head < 0 || n == 0 || len(now.rows)%n != 0 {
		r.total.doubts.Unplaced++
		return
	}
	each := len(now.rows) / n
	rows := make([]kvcache.StateRow, n)
	for i := range rows {
		begin, end := &now.rows[i*each], &now.rows[(i+1)*each-1]
		rows[i] = kvcache.StateRow{Seqs: begin.Seqs, First: begin.Pos, Pos: end.Pos}
		if len(begin.Seqs) == 0 {
			r.total.doubts.Unknown++
		}
	}
	sources := now.cells(now.g.copied)
	r.total.doubts.Outside += int64(w.states.Place(now.g.head, rows, sources, now.MonoNS))
	m := w.moment(now)
	for g := range w.groups {
		w.states.Touch(g, now.g.head, n, m, w.groups[g].writes, w.groups[g].reads)
	}
}
