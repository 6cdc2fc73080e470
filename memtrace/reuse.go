package memtrace

// reuse knows how many different bytes were touched since a block was: its reuse distance, in time that grows with the logarithm of the
// number of blocks.
type reuse struct {
	tree []uint64    // Fenwick tree of bytes by place; place 0 is not used
	at   []*followed // by place, in the order in which they were touched last; nil: touched again since
	next int         // the next place
	live int
	all  uint64 // bytes of all blocks
}

// touch says that a block was touched, and returns the bytes of other blocks touched since it was before; false the first time.
func (r *reuse) touch(b *followed) (distance uint64, again bool) {
	if b.place > 0 {
		distance, again = r.all-r.prefix(b.place), true
		r.forget(b)
	}
	if r.next == len(r.at) {
		r.renumber()
	}
	b.place = r.next
	r.at[r.next] = b
	r.next++
	r.live++
	r.add(b.place, b.bytes)
	r.all += b.bytes
	return distance, again
}

// forget takes a block out.
func (r *reuse) forget(b *followed) {
	if b.place == 0 {
		return
	}
	r.add(b.place, -b.bytes)
	r.at[b.place] = nil
	b.place = 0
	r.live--
	r.all -= b.bytes
}

// renumber makes room behind the newest place.
func (r *reuse) renumber() {
	old := r.at
	r.at = make([]*followed, max(64, 2*(r.live+1)))
	r.tree = make([]uint64, len(r.at))
	r.next = 1
	for _, b := range old {
		if b != nil {
			b.place = r.next
			r.at[r.next] = b
			r.add(r.next, b.bytes)
			r.next++
		}
	}
}

func (r *reuse) add(place int, bytes uint64) {
	for ; place < len(r.tree); place += place & -place {
		r.tree[place] += bytes
	}
}

// prefix is the bytes at places up to one.
func (r *reuse) prefix(place int) (bytes uint64) {
	for ; place > 0; place -= place & -place {
		bytes += r.tree[place]
	}
	return bytes
}
