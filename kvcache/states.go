package kvcache

// States of recurrent layers, as llama_memory_recurrent keeps them: a cell holds the state behind one position of
// one sequence, or of several that have gone on alike. Computing tokens replaces a state by the one behind them, in
// the same cell or in another: that is an update, and the life goes on.

// StateRow is a sequence, or a set of them, whose state a micro-batch replaces.
type StateRow struct {
	Seqs       []int32 // empty where nobody knows
	First, Pos int32   // positions of its first and last token in the micro-batch
}

// PlaceStates says that the states behind rows were written to neighbouring cells from head on, and those of the
// cells sources[len(rows):] moved to the cells behind them. sources[i] is the cell that the state of row i came
// from. ns is CLOCK_MONOTONIC.
func (c *Cache) PlaceStates(head int, rows []StateRow, sources []int64, ns int64) (outside int) {
	if head < 0 || head+max(len(rows), len(sources)) > len(c.cells) {
		return max(len(rows), len(sources))
	}
	moved := false
	for i := range rows {
		moved = moved || !c.goesOn(head+i, &rows[i])
	}
	for i := len(rows); i < len(sources); i++ {
		moved = moved || sources[i] != int64(head+i) && !c.cells[head+i].free()
	}
	if moved {
		c.rearrange(head, len(rows), rows, sources, ns)
	}
	for i := range rows {
		row, cell := &rows[i], &c.cells[head+i]
		cell.pos = row.Pos
		cell.life.holds(head+i, row.First)
		cell.life.holds(head+i, row.Pos)
		for _, seq := range row.Seqs {
			c.unseen.set(seq, false) // a sequence has one state
		}
		if !moved {
			c.note(Update, NotEvicted, first(row.Seqs), row.Pos).Written++
		}
	}
	return 0
}

func first(seqs []int32) int32 {
	if len(seqs) == 0 {
		return -1
	}
	return seqs[0]
}

// goesOn reports whether a cell holds the state that a row replaces, and nothing else.
func (c *Cache) goesOn(at int, row *StateRow) bool {
	cell := &c.cells[at]
	if cell.free() || len(row.Seqs) == 0 || cell.seqs.Len() != len(row.Seqs) {
		return false
	}
	for _, seq := range row.Seqs {
		if !cell.seqs.Has(seq) {
			return false
		}
	}
	return true
}

// rearrange gives the rows their cells. A state whose sequences all are those of a row moves there with its life; a
// row whose sequences share a state with others, or have none, begins a life.
func (c *Cache) rearrange(head, n int, rows []StateRow, sources []int64, ns int64) {
	old := append([]cell(nil), c.cells...)
	lives := make([]*Life, n)
	var placed Set
	for i := range rows {
		for _, seq := range rows[i].Seqs {
			placed.Add(seq)
		}
		lives[i] = c.ownLife(&rows[i], old)
	}
	kept := map[int]bool{}
	next := make([]cell, len(c.cells))
	for at := range next {
		next[at] = cell{pos: noPos}
		if at < head || at >= head+max(n, len(sources)) {
			next[at] = without(old[at], &placed)
		}
	}
	for i := n; i < len(sources); i++ { // the others of this stretch
		if from := int(sources[i]) % len(old); from >= 0 && !kept[from] {
			next[head+i] = without(old[from], &placed)
			kept[from] = true
		}
	}
	c.settleStates(next, head, rows, lives, ns)
}

// ownLife is the life of the state that a row's sequences have for themselves.
func (c *Cache) ownLife(row *StateRow, old []cell) *Life {
	for at := range old {
		if !old[at].free() && c.goesOn(at, row) {
			return old[at].life
		}
	}
	return nil
}

// without is a cell without sequences that are placed elsewhere; free if it has no others.
func without(from cell, placed *Set) cell {
	for seq := range from.seqs.All() {
		if placed.Has(seq) {
			from.seqs.Drop(seq)
		}
	}
	if from.seqs.Empty() {
		return cell{pos: noPos}
	}
	return from
}

// settleStates makes next the cells, and ends the lives that none of them has.
func (c *Cache) settleStates(next []cell, head int, rows []StateRow, lives []*Life, ns int64) {
	alive := map[*Life]bool{}
	for i := range rows {
		at := head + i
		next[at] = cell{pos: rows[i].Pos, life: lives[i]}
		for _, seq := range rows[i].Seqs {
			next[at].seqs.Add(seq)
		}
	}
	for at := range next {
		alive[next[at].life] = true
	}
	for at := range c.cells {
		if l := c.cells[at].life; l != nil && !alive[l] {
			c.note(Evict, Overwrite, l.Seq, c.cells[at].pos)
			l.alive = 1
			c.leave(at, Overwrite, ns)
		}
	}
	c.cells = next
	c.recount()
	for at := range c.cells {
		cell := &c.cells[at]
		switch {
		case cell.free():
		case cell.life == nil:
			seq := first(rows[at-head].Seqs)
			c.join(at, seq, Written, ns)
			c.note(Allocate, NotEvicted, seq, cell.pos).Written++
			if seq < 0 {
				c.unseen.every()
			}
		case cell.life.Block != at:
			c.unlink(cell.life)
			cell.life.Block, cell.life.next = at, c.blocks[at]
			c.blocks[at] = cell.life
			cell.life.holds(at, cell.pos)
			c.moved(at, head, len(rows))
		default:
			c.moved(at, head, len(rows))
		}
	}
}

// moved notes a state that has its cell now. Those of the n rows from head on were written.
func (c *Cache) moved(at, head, n int) {
	change := c.note(Update, NotEvicted, c.cells[at].life.Seq, c.cells[at].pos)
	if at >= head && at < head+n {
		change.Written++
	}
}

// recount counts what is in use.
func (c *Cache) recount() {
	c.used, c.shared, c.counts = 0, 0, [MaxSeqs]int{}
	for at := range c.cells {
		cell := &c.cells[at]
		if cell.free() {
			continue
		}
		c.used++
		if cell.seqs.Len() > 1 {
			c.shared++
		}
		for seq := range cell.seqs.All() {
			c.counts[seq]++
		}
	}
}

// removeState takes a sequence from its state, if that stands in the range. If only the state's last positions are
// in it, llama.cpp goes back to a state that it kept.
func (c *Cache) removeState(seq, from, end int32, why Reason, ns int64) {
	for at := range c.cells {
		cell := &c.cells[at]
		inside := cell.in(from, end) || cell.pos == PosUnknown && from == 0
		switch {
		case cell.free() || !inside || seq >= 0 && !cell.seqs.Has(seq):
		case seq < 0:
			c.evict(at, why, ns)
		case from > 0:
			cell.pos = from - 1
			c.note(Update, NotEvicted, seq, cell.pos)
		default:
			c.drop(at, seq, why, ns)
		}
	}
}

// copyState makes a sequence share the state of another one.
func (c *Cache) copyState(from, to int32, ns int64) {
	for at := range c.cells {
		c.drop(at, to, SeqRm, ns)
	}
	for at := range c.cells {
		if c.cells[at].seqs.Has(from) && c.give(at, to) {
			c.note(Update, NotEvicted, to, c.cells[at].pos)
		}
	}
}

// States calls Wrote and Read for the cells of rows: each state was read, where it had one, and written.
func (c *Cache) States(group, head int, rows []StateRow, m *Moment, write, read int64) {
	for i := range rows {
		if at := head + i; at < len(c.cells) && c.cells[at].life != nil {
			t := &c.cells[at].life.Touches[group]
			if read > 0 && t.Writes > 0 {
				t.read(read, m)
			}
			if write > 0 {
				t.write(write, m)
			}
		}
	}
}
