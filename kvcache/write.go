package kvcache

// Row is a token that is written to a cell.
type Row struct {
	Cell int     // counted over all streams
	Pos  int32   // PosUnknown where the graph does not say
	Seqs []int32 // empty where nobody knows
}

// Place puts tokens into cells, as llama.cpp does before it computes a micro-batch. ns is CLOCK_MONOTONIC. A cell
// that was in use is evicted first, as llama.cpp does when a window has slid past it; then it evicts what stands
// before that position in its sequence, too, so that no sequence has gaps. Cells that the cache does not have are
// left out; their number is returned.
func (c *Cache) Place(rows []Row, ns int64) (outside int) {
	var highest map[int32]int32 // positions that were overwritten
	for i := range rows {
		row := &rows[i]
		if row.Cell < 0 || row.Cell >= len(c.cells) {
			outside++
			continue
		}
		if cell := &c.cells[row.Cell]; !cell.free() {
			if c.rewritten(cell, row) {
				continue
			}
			highest = c.overwrite(row.Cell, highest, ns)
		}
		c.take(row.Cell, row.Pos, row.Seqs)
		seq := int32(-1)
		if len(row.Seqs) > 0 {
			seq = row.Seqs[0]
		} else {
			c.unseen.every()
		}
		c.join(row.Cell, seq, Written, ns)
		c.note(Allocate, NotEvicted, seq, row.Pos).Written++
	}
	for seq, pos := range highest {
		if low, _, _ := c.Range(seq); low >= 0 && low <= pos {
			c.remove(seq, low, pos+1, Overwrite, ns)
		}
	}
	return outside
}

// rewritten reports whether a row is what its cell holds already: that is an update.
func (c *Cache) rewritten(cell *cell, row *Row) bool {
	if cell.pos != row.Pos || cell.pos < 0 || len(row.Seqs) != cell.seqs.Len() {
		return false
	}
	for _, seq := range row.Seqs {
		if !cell.seqs.Has(seq) {
			return false
		}
	}
	c.note(Update, NotEvicted, row.Seqs[0], row.Pos).Written++
	return true
}

// overwrite evicts the cell that another position comes to.
func (c *Cache) overwrite(at int, highest map[int32]int32, ns int64) map[int32]int32 {
	cell := &c.cells[at]
	if cell.doubt != 0 {
		c.evict(at, SeqRm, ns) // so it had been removed
		return highest
	}
	if cell.pos >= 0 && cell.seqs.Len() == 1 {
		if highest == nil {
			highest = map[int32]int32{}
		}
		for seq := range cell.seqs.All() {
			if was, ok := highest[seq]; !ok || was < cell.pos {
				highest[seq] = cell.pos
			}
		}
	}
	c.evict(at, Overwrite, ns)
	return highest
}

// Wrote says that the rows of a micro-batch, which were placed, were written n times to the parts of a group.
func (c *Cache) Wrote(group int, rows []Row, m *Moment, n int64) {
	for i := range rows {
		if at := rows[i].Cell; at >= 0 && at < len(c.cells) && c.cells[at].life != nil {
			c.cells[at].life.Touches[group].write(n, m)
		}
	}
}

// Rewrote says that all parts of some groups, of every cell, were read and written again, as a shift of positions
// does with the keys.
func (c *Cache) Rewrote(groups []int, m *Moment) {
	if len(groups) == 0 {
		return
	}
	c.Lives(func(l *Life) {
		for _, group := range groups {
			l.Touches[group].read(int64(l.alive), m)
			l.Touches[group].write(int64(l.alive), m)
		}
	})
	for at := range c.cells {
		if cell := &c.cells[at]; !cell.free() {
			c.note(Update, NotEvicted, cell.seqs.lowest(), cell.pos).Written++
		}
	}
}

// Refine sorts the parts of the cache into groups: parts of one group have been touched together so far, and have
// the same key now. Keys stand in the order of Parts; those of parts that are new must be among them. It returns
// true if the groups changed.
func (c *Cache) Refine(keys []string) bool {
	before := len(c.groups)
	for g := 0; g < len(c.groups); g++ {
		group := c.groups[g]
		kept, split := group[:0:0], group[:0:0]
		for _, part := range group {
			if keys[part] == keys[group[0]] {
				kept = append(kept, part)
			} else {
				split = append(split, part)
			}
		}
		if len(split) > 0 {
			c.groups[g] = kept
			c.groups = append(c.groups, split)
			c.Lives(func(l *Life) { l.Touches = append(l.Touches, l.Touches[g]) })
		}
	}
	c.group(keys)
	return len(c.groups) != before
}

// group puts parts that have no group yet into new ones.
func (c *Cache) group(keys []string) {
	grouped := 0
	for _, group := range c.groups {
		grouped += len(group)
	}
	made := map[string]int{}
	for part := grouped; part < len(c.Parts); part++ {
		g, ok := made[keys[part]]
		if !ok {
			g = len(c.groups)
			made[keys[part]] = g
			c.groups = append(c.groups, nil)
			c.Lives(func(l *Life) { l.Touches = append(l.Touches, Touch{}) })
		}
		c.groups[g] = append(c.groups[g], part)
	}
}

// Groups are the parts, by number, that were always touched together. A life has one Touch for each.
func (c *Cache) Groups() [][]int { return c.groups }
