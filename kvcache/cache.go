package kvcache

// Positions that are none.
const (
	noPos      = -1 // of a free cell
	PosUnknown = -2 // of a cell that is in use, nobody knows with which position
)

// cell is a slot for one token, in every layer of the cache.
type cell struct {
	pos   int32
	doubt int64 // when positions were removed of which this may have been one; 0 = it is there
	seqs  Set
	life  *Life
}

func (c *cell) free() bool { return c.pos == noPos }

// in reports whether a cell's position is first ≤ pos < end. What is unknown is in no range but the whole.
func (c *cell) in(first, end int32) bool { return c.pos >= first && c.pos < end }

// Cache follows the cells of one cache. It is for one goroutine.
type Cache struct {
	Shape
	Parts []Part
	// Ended gets each life that ends, which it may keep.
	Ended func(*Life)

	cells   []cell
	blocks  []*Life // lives of each block, newest first
	used    int
	shared  int // cells of more than one sequence
	counts  [MaxSeqs]int
	groups  [][]int // parts that were always touched together
	changes []Change
	unseen  unseen
}

// unseen says which sequences may have cells that nobody saw.
type unseen struct {
	all  bool
	seqs map[int32]bool // those that have while all is false, those that have not while it is true
}

func (u *unseen) has(seq int32) bool { return u.seqs[seq] != u.all }

func (u *unseen) set(seq int32, has bool) {
	switch {
	case has == u.all:
		delete(u.seqs, seq)
	case u.seqs == nil:
		u.seqs = map[int32]bool{seq: true}
	default:
		u.seqs[seq] = true
	}
}

func (u *unseen) none() { u.all = false; clear(u.seqs) }

func (u *unseen) every() { u.all = true; clear(u.seqs) }

// NewCache makes an empty cache.
func NewCache(s Shape) *Cache {
	s.settle()
	c := &Cache{Shape: s, Ended: func(*Life) {}, cells: make([]cell, s.Cells()), blocks: make([]*Life, s.Streams*s.BlocksPerStream())}
	for i := range c.cells {
		c.cells[i].pos = noPos
	}
	return c
}

// Used is the number of cells in use, as far as that is known.
func (c *Cache) Used() int { return c.used }

// Shared is the number of cells that belong to more than one sequence.
func (c *Cache) Shared() int { return c.shared }

// Count is the number of a sequence's cells, as far as they are known.
func (c *Cache) Count(seq int32) int {
	if seq < 0 || seq >= MaxSeqs {
		return 0
	}
	return c.counts[seq]
}

// Known reports whether every cell of a sequence was seen.
func (c *Cache) Known(seq int32) bool { return !c.unseen.has(seq) }

// Range is the lowest and the highest position of a sequence, -1 and -1 where it has no cells, as
// llama_memory_seq_pos_min and _max have them. It is not known where one of the sequence's positions is not.
func (c *Cache) Range(seq int32) (low, high int32, known bool) {
	low, high, known = -1, -1, c.Known(seq)
	for i := range c.stream(c.streamOf(seq)) {
		at := c.streamOf(seq)*c.Size + i
		switch cell := &c.cells[at]; {
		case !cell.seqs.Has(seq):
		case cell.pos < 0 || cell.doubt != 0:
			known = false
		default:
			if low < 0 || cell.pos < low {
				low = cell.pos
			}
			high = max(high, cell.pos)
		}
	}
	return low, high, known
}

// stream are the cells of a stream.
func (c *Cache) stream(n int) []cell { return c.cells[n*c.Size : (n+1)*c.Size] }

// join makes a cell, which was written by a sequence, one of a life of its block.
func (c *Cache) join(at int, seq int32, origin Origin, ns int64) {
	cell, block := &c.cells[at], c.BlockOf(at)
	l := c.blocks[block]
	for l != nil && (l.closed || l.Seq != seq || l.Origin != origin) {
		l = l.next
	}
	if l == nil {
		l = &Life{Block: block, Seq: seq, PosFirst: PosUnknown, PosEnd: PosUnknown, Origin: origin, AllocNS: ns, Touches: make([]Touch, len(c.groups)), next: c.blocks[block]}
		c.blocks[block] = l
	}
	l.alive++
	l.Cells = max(l.Cells, l.alive)
	l.Sharers = max(l.Sharers, cell.seqs.Len())
	l.holds(at, cell.pos)
	cell.life = l
}

// take puts a position and sequences into a free cell.
func (c *Cache) take(at int, pos int32, seqs []int32) {
	cell := &c.cells[at]
	cell.pos, cell.doubt = pos, 0
	c.used++
	for _, seq := range seqs {
		c.give(at, seq)
	}
}

// give makes a cell one of a sequence, too.
func (c *Cache) give(at int, seq int32) bool {
	cell := &c.cells[at]
	if !cell.seqs.Add(seq) {
		return false
	}
	c.counts[seq]++
	n := cell.seqs.Len()
	if n == 2 {
		c.shared++
	}
	if cell.life != nil {
		cell.life.Sharers = max(cell.life.Sharers, n)
	}
	return true
}

// drop takes a cell from a sequence, and frees it if it was its last.
func (c *Cache) drop(at int, seq int32, why Reason, ns int64) {
	cell := &c.cells[at]
	if !cell.seqs.Has(seq) {
		return
	}
	if cell.seqs.Len() == 1 {
		c.evict(at, why, ns)
		return
	}
	cell.seqs.Drop(seq)
	c.counts[seq]--
	if cell.seqs.Len() == 1 {
		c.shared--
	}
}

// evict frees a cell.
func (c *Cache) evict(at int, why Reason, ns int64) {
	cell := &c.cells[at]
	first := int32(-1)
	if cell.seqs.Len() > 1 {
		c.shared--
	}
	for seq := range cell.seqs.All() {
		c.counts[seq]--
		if first < 0 {
			first = seq
		}
	}
	if cell.doubt != 0 {
		ns = cell.doubt // it went when it came in doubt
	}
	c.note(Evict, why, first, cell.pos)
	c.leave(at, why, ns)
	cell.pos, cell.doubt, cell.seqs = noPos, 0, Set{}
	c.used--
}

// leave takes a cell from its life, and ends that if it was its last.
func (c *Cache) leave(at int, why Reason, ns int64) {
	l := c.cells[at].life
	c.cells[at].life = nil
	if l == nil {
		return
	}
	if why == Overwrite {
		l.closed = true
	}
	if l.alive--; l.alive > 0 {
		return
	}
	l.EndNS, l.Reason = ns, why
	c.unlink(l)
	c.Ended(l)
}

func (c *Cache) unlink(l *Life) {
	for at := &c.blocks[l.Block]; *at != nil; at = &(*at).next {
		if *at == l {
			*at = l.next
			break
		}
	}
	l.next = nil
}

// End ends every life, because watching ends: they are censored, not evicted. The cache is empty then.
func (c *Cache) End(ns int64) {
	for block, l := range c.blocks {
		for ; l != nil; l = c.blocks[block] {
			l.EndNS, l.Reason = ns, NotEvicted
			c.unlink(l)
			c.Ended(l)
		}
	}
	c.forget()
}

// Forget empties the cache as if nothing had been in it: what a program did was a set-up. No life ends.
func (c *Cache) Forget() {
	clear(c.blocks)
	c.forget()
}

func (c *Cache) forget() {
	for i := range c.cells {
		c.cells[i] = cell{pos: noPos}
	}
	c.used, c.shared, c.counts, c.changes = 0, 0, [MaxSeqs]int{}, c.changes[:0]
	c.unseen.none()
}

// Lives calls f with every life that has not ended.
func (c *Cache) Lives(f func(*Life)) {
	for _, l := range c.blocks {
		for ; l != nil; l = l.next {
			f(l)
		}
	}
}
