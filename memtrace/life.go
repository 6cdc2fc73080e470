package memtrace

// lives follow whose bytes are, when they were written, and for how long that was needed.
type lives struct {
	clock   *clock
	regions *followed
	ends    []run[written] // what the bytes were whose life ends
	spare   []run[written] // scratch
}

// owner is the region that bytes belonged to.
func (l *lives) owner(o *run[written]) *region { return l.regions.order[o.is.owner] }

// load takes in that a region was written as a whole before it is touched first.
func (l *lives) load(s *space, r *region) {
	at := min(r.place.Written, l.clock.now)
	start, end := r.place.Offset, r.place.Offset+r.place.Bytes
	l.ends = s.written.put(start, end, written{at, r.number, 1, true}, l.ends[:0])
	r.live(int64(end-start), l.clock.first, at)
}

// write lets bytes be written by a region. before says when they were touched before.
func (l *lives) write(s *space, r *region, start, end uint64, before []run[touched]) {
	weight := s.weight()
	if g := s.written.exact(start, end); g != nil {
		l.ends = append(l.ends[:0], *g)
		g.is = written{l.clock.at, r.number, min(g.is.times+1, 2), true}
	} else {
		l.ends = s.written.put(start, end, written{l.clock.at, r.number, 1, true}, l.ends[:0])
		for i := range l.ends {
			if o := &l.ends[i]; o.is.times > 0 {
				l.spare = s.written.put(o.start, o.end, written{l.clock.at, r.number, 2, true}, l.spare[:0])
			}
		}
	}
	l.retained(before, weight, false)
	l.takeOwnership(r, end-start, weight)
}

// takeOwnership moves bytes to a region from those in l.ends.
func (l *lives) takeOwnership(r *region, bytes uint64, weight int64) {
	fresh := int64(bytes) * weight
	for i := range l.ends {
		o := &l.ends[i]
		if o.is.owner == r.number {
			fresh -= int64(o.end-o.start) * weight
			continue
		}
		l.leave(o, weight)
	}
	if fresh != 0 {
		r.live(fresh, l.clock.first, l.clock.at)
	}
}

// leave lets bytes belong no more to the region that they belonged to.
func (l *lives) leave(o *run[written], weight int64) {
	owner, n := l.owner(o), int64(o.end-o.start)*weight
	owner.live(-n, l.clock.first, l.clock.now)
	if o.is.times > 0 {
		owner.Written += n
	}
}

// read lets bytes be read by a region. Those that are not a region's are its own from now on; those that another one
// wrote must have been written by something that no touch shows, such as a program that sets an input.
func (l *lives) read(s *space, r *region, start, end uint64, before []run[touched]) {
	weight := s.weight()
	if g := s.written.exact(start, end); g != nil {
		if g.is.owner != r.number {
			l.ends = append(l.ends[:0], *g)
			g.is = written{0, r.number, min(g.is.times+1, 2), false}
			r.live(int64(end-start)*weight, l.clock.first, l.clock.now)
			l.retained(before, weight, false)
			l.leave(&l.ends[0], weight)
		}
		return
	}
	l.ends = s.written.get(start, end, l.ends[:0])
	others := l.ends[:0]
	at := start
	for _, o := range l.ends {
		if o.start > at {
			l.claim(s, r, at, o.start, 0)
		}
		at = o.end
		if o.is.owner != r.number {
			l.claim(s, r, o.start, o.end, min(o.is.times+1, 2))
			others = append(others, o)
		}
	}
	if at < end {
		l.claim(s, r, at, end, 0)
	}
	l.ends = others
	l.retained(before, weight, false)
	for i := range others {
		l.leave(&others[i], weight)
	}
}

// claim lets bytes belong to a region whose write was not seen.
func (l *lives) claim(s *space, r *region, start, end uint64, times uint8) {
	l.spare = s.written.put(start, end, written{0, r.number, times, false}, l.spare[:0])
	r.live(int64(end-start)*s.weight(), l.clock.first, l.clock.now)
}

// retained counts for how long what l.ends says was needed: up to the last read, which before holds. What nobody
// read was needed for no time.
func (l *lives) retained(before []run[touched], weight int64, censored bool) {
	if len(l.ends) == 1 && len(before) == 1 { // the most frequent
		w, t := &l.ends[0], &before[0]
		if t.start <= w.start && t.end >= w.end {
			if w.is.known {
				l.owner(w).Retention.Add(needed(w, t), int64(w.end-w.start)*weight, censored)
			}
			return
		}
	}
	k := 0
	for i := range l.ends {
		w := &l.ends[i]
		if !w.is.known {
			continue
		}
		owner := l.owner(w)
		for k > 0 && before[k-1].end > w.start {
			k--
		}
		at := w.start
		for ; k < len(before) && before[k].start < w.end; k++ {
			t := &before[k]
			if t.end <= at {
				continue
			}
			if t.start > at { // it was written before anything was seen of it
				owner.Retention.Add(0, int64(t.start-at)*weight, censored)
				at = t.start
			}
			last := min(t.end, w.end)
			owner.Retention.Add(needed(w, t), int64(last-at)*weight, censored)
			at = last
		}
		if at < w.end {
			owner.Retention.Add(0, int64(w.end-at)*weight, censored)
		}
	}
}

// needed is for how long bytes were that were written, and touched last, so: for no time where they were not read
// since.
func needed(w *run[written], t *run[touched]) int64 {
	if !t.is.read {
		return 0
	}
	return t.is.ns - w.is.ns
}

// live records that bytes of a region begin to live, or, below 0, that they end.
func (m *Metrics) live(bytes, first, ns int64) { m.LiveNS -= float64(bytes) * float64(ns-first) }

// end ends the lives of bytes, or the trace where they live on.
func (l *lives) end(s *space, start, end uint64, before []run[touched], censored bool) {
	weight := s.weight()
	l.ends = s.written.cutOut(start, end, l.ends[:0])
	l.retained(before, weight, censored)
	for i := range l.ends {
		o := &l.ends[i]
		owner, n := l.owner(o), int64(o.end-o.start)*weight
		owner.live(-n, l.clock.first, l.clock.now)
		if o.is.times == 0 {
			continue
		}
		owner.Written += n
		owner.kind.Written += n
		if o.is.times == 1 {
			owner.WrittenOnce += n
			owner.kind.WrittenOnce += n
		}
	}
}
