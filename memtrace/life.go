package memtrace

// This file follows whose bytes are, when they were written, and for how long that was needed.

// write lets bytes be written by a region. m.tails says when they were touched before.
func (m *Meter) write(s *space, r *region, start, end uint64) {
	weight := s.weight()
	if g := s.written.exact(start, end, &r.written); g != nil {
		m.heads = append(m.heads[:0], *g)
		g.is = written{m.at, r.number, min(g.is.times+1, 2), true}
	} else {
		m.heads = s.written.putAt(&r.written, start, end, written{m.at, r.number, 1, true}, m.heads[:0])
		for i := range m.heads {
			if o := &m.heads[i]; o.is.times > 0 {
				m.spare = s.written.put(o.start, o.end, written{m.at, r.number, 2, true}, m.spare[:0])
			}
		}
	}
	m.retained(weight, false)
	m.own(r, end-start, weight)
}

// own lets bytes belong to a region that belonged to those that m.heads says.
func (m *Meter) own(r *region, bytes uint64, weight int64) {
	fresh := int64(bytes) * weight
	for i := range m.heads {
		o := &m.heads[i]
		if o.is.owner == r.number {
			fresh -= int64(o.end-o.start) * weight
			continue
		}
		m.leave(o, weight)
	}
	if fresh != 0 {
		r.live(fresh, m.first, m.at)
	}
}

// leave lets bytes belong no more to the region that they belonged to.
func (m *Meter) leave(o *run[written], weight int64) {
	owner, n := m.regions.order[o.is.owner], int64(o.end-o.start)*weight
	owner.live(-n, m.first, m.now)
	if o.is.times > 0 {
		owner.Written += n
	}
}

// read lets bytes be read by a region. Those that are no region's are its own from now on; those that another one
// wrote must have been written by something that no touch shows, such as a program that sets an input.
func (m *Meter) read(s *space, r *region, start, end uint64) {
	weight := s.weight()
	if g := s.written.exact(start, end, &r.written); g != nil {
		if g.is.owner != r.number {
			m.heads = append(m.heads[:0], *g)
			g.is = written{0, r.number, min(g.is.times+1, 2), false}
			r.live(int64(end-start)*weight, m.first, m.now)
			m.retained(weight, false)
			m.leave(&m.heads[0], weight)
		}
		return
	}
	m.heads = s.written.get(start, end, m.heads[:0])
	others := m.heads[:0]
	at := start
	for _, o := range m.heads {
		if o.start > at {
			m.claim(s, r, at, o.start, 0)
		}
		at = o.end
		if o.is.owner != r.number {
			m.claim(s, r, o.start, o.end, min(o.is.times+1, 2))
			others = append(others, o)
		}
	}
	if at < end {
		m.claim(s, r, at, end, 0)
	}
	m.heads = others
	m.retained(weight, false)
	for i := range others {
		m.leave(&others[i], weight)
	}
}

// claim lets bytes belong to a region whose write was not seen.
func (m *Meter) claim(s *space, r *region, start, end uint64, times uint8) {
	m.spare = s.written.put(start, end, written{0, r.number, times, false}, m.spare[:0])
	r.live(int64(end-start)*s.weight(), m.first, m.now)
}

// retained counts for how long what m.heads says was needed: up to the last read, which m.tails holds. What nobody
// read was needed for no time.
func (m *Meter) retained(weight int64, censored bool) {
	if len(m.heads) == 1 && len(m.tails) == 1 { // the most frequent
		w, t := &m.heads[0], &m.tails[0]
		if t.start <= w.start && t.end >= w.end {
			if w.is.known {
				m.regions.order[w.is.owner].Retention.Add(needed(w, t), int64(w.end-w.start)*weight, censored)
			}
			return
		}
	}
	k := 0
	for i := range m.heads {
		w := &m.heads[i]
		if !w.is.known {
			continue
		}
		owner := m.regions.order[w.is.owner]
		for k > 0 && m.tails[k-1].end > w.start {
			k--
		}
		at := w.start
		for ; k < len(m.tails) && m.tails[k].start < w.end; k++ {
			t := &m.tails[k]
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

// live says that bytes of a region begin to live, or of fewer than 0 that they end.
func (m *Metrics) live(bytes, first, ns int64) { m.LiveNS -= float64(bytes) * float64(ns-first) }

// renew ends what a range held. Of the allocation of a region another life begins.
func (m *Meter) renew(a *Touch) {
	if !a.renews() {
		return
	}
	censored := a.Op == OpFree && a.Ended
	if a.Region < 0 {
		m.renewBuffer(a, censored)
		return
	}
	r := m.region(a.Region, a.Type)
	s := m.spaceOf(r, a.Buffer)
	isExact := s.stretches(a, func(start, end uint64) {
		start, end = s.snap(start, end)
		m.end(s, start, end, censored)
		if a.Op == OpAlloc && start < end {
			m.claim(s, r, start, end, 0)
		}
	})
	if !isExact {
		r.Hulls++
	}
}

// renewBuffer ends what regions held that lie in a range of a buffer.
func (m *Meter) renewBuffer(a *Touch, censored bool) {
	if s := m.buffers[a.Buffer]; s != nil {
		m.end(s, a.Offset, a.Offset+a.Size, censored)
	}
	for _, r := range m.regions.order {
		s := r.space
		if s == nil || s.shared || r.buffer != a.Buffer {
			continue
		}
		start, end := s.base, s.base+s.bytes
		if s.bytes == 0 {
			start, end = s.touched.span()
		}
		if start >= a.Offset && end <= a.Offset+a.Size {
			m.end(s, 0, Forever, censored)
		}
	}
}

// EndCells ends, at a time, what cells first to end-1 of a cache held, of bytes each in the region's tensor. It is
// false if they cannot be found in it.
func (m *Meter) EndCells(region int, first, end, bytes, ns int64) bool {
	all := m.regions.dense
	if region < 0 || region >= len(all) || all[region] == nil || all[region].space == nil {
		return region >= 0 // nothing was written there
	}
	if first < 0 || first >= end || bytes <= 0 || end > maxSpan/bytes {
		return false
	}
	s := all[region].space
	from, to := s.base+uint64(first*bytes), s.base+uint64(end*bytes)
	if s.rows > 0 {
		width := uint64(bytes) / s.rows
		if width == 0 || uint64(bytes)%s.rows != 0 || s.stride%width != 0 {
			return false
		}
		perStream := s.stride / width
		stream := uint64(first) / perStream
		from = stream*s.stride + uint64(first)%perStream*width
		if to = from + uint64(end-first)*width; to > (stream+1)*s.stride {
			return false
		}
	} else if s.bytes > 0 && to > s.base+s.bytes {
		return false
	}
	m.advance(ns)
	from, to = s.snap(from, to)
	m.end(s, from, to, false)
	return true
}

// end ends the lives of bytes, or the trace where they live on.
func (m *Meter) end(s *space, start, end uint64, censored bool) {
	weight := s.weight()
	m.tails = s.touched.take(start, end, m.tails[:0])
	m.heads = s.written.take(start, end, m.heads[:0])
	for i := range m.tails {
		o := &m.tails[i]
		m.recent.leave(o.is.slot, int64(o.end-o.start)*weight)
	}
	m.retained(weight, censored)
	for i := range m.heads {
		o := &m.heads[i]
		owner, n := m.regions.order[o.is.owner], int64(o.end-o.start)*weight
		owner.live(-n, m.first, m.now)
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
