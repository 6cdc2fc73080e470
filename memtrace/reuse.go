package memtrace

// reuse follows when bytes were touched: the time and the bytes between two touches of a byte.
type reuse struct {
	recency
	clock  *clock
	before []run[touched] // what the bytes were that were touched last, or forgotten
}

// touch follows a touch of a range of a space. It returns how many bytes were not touched before; what the others
// were is in u.before.
func (u *reuse) touch(s *space, r *region, start, end uint64, read bool) (fresh int64) {
	weight, slot := s.weight(), u.slot()
	is := touched{u.clock.at, slot, read}
	if g := s.touched.exact(start, end); g != nil {
		u.before = append(u.before[:0], *g)
		g.is = is
		before, bytes := &u.before[0].is, int64(end-start)*weight
		u.addRetouched(r, before, bytes)
		u.move(before.slot, slot, bytes)
		return 0
	}
	u.before = s.touched.put(start, end, is, u.before[:0])
	fresh = int64(end - start)
	for i := range u.before {
		o := &u.before[i]
		n := int64(o.end - o.start)
		fresh -= n
		u.addRetouched(r, &o.is, n*weight)
	}
	u.leaveAll(weight)
	u.addNewest(slot, int64(end-start)*weight)
	if fresh > 0 {
		u.clock.fresh(r, fresh*weight)
	}
	return fresh
}

// leaveAll takes the bytes of u.before out of their slots.
func (u *reuse) leaveAll(weight int64) {
	for i := range u.before {
		o := &u.before[i]
		u.leave(o.is.slot, int64(o.end-o.start)*weight)
	}
}

// addRetouched counts bytes that were touched before.
func (u *reuse) addRetouched(r *region, before *touched, bytes int64) {
	// Below 0 only by overflow, in damaged files.
	interval, distance := max(u.clock.at-before.ns, 0), max(u.since(before.slot), 0)
	r.IAI.Add(interval, bytes)
	r.Reuse.Add(distance, bytes)
	r.kind.IAIs.bucket(interval).add(interval, bytes) // what they add up to is known of regions
	r.kind.Reuses.bucket(distance).add(distance, bytes)
	u.clock.addRetouched(r, before.ns, bytes)
}

// forget forgets a range, and returns what it was.
func (u *reuse) forget(s *space, start, end uint64) []run[touched] {
	u.before = s.touched.cutOut(start, end, u.before[:0])
	u.leaveAll(s.weight())
	return u.before
}
