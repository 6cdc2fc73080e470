package kvcache

import (
	"math"
	"slices"
)

// States is a cache of the states of recurrent layers, which a program changes as llama_memory_recurrent does. A
// cell holds the state after one position of one sequence, or of several that have continued alike. Computing tokens
// replaces a state by the one after them, in the same cell or in another: that is an update, and its life continues.
type States struct{ Cache }

// NewStates makes an empty cache.
func NewStates(s Shape) *States { return &States{newCache(s)} }

// StateRow is a sequence, or a set of them, whose state a micro-batch replaces.
type StateRow struct {
	Seqs       []int32 // empty where unknown
	First, Pos int32   // positions of its first and last token in the micro-batch
}

func firstOf(seqs []int32) int32 {
	if len(seqs) == 0 {
		return -1
	}
	return seqs[0]
}

// Place records that the states after rows were written to neighbouring cells from head on, and those of the cells
// sources[len(rows):] moved to the cells after them. sources[i] is the cell that the state of row i came from. It
// returns the number of rows that are outside of the cache.
func (c *States) Place(head int, rows []StateRow, sources []int64, ns int64) (outside int) {
	if n := max(len(rows), len(sources)); head < 0 || head+n > len(c.cells) {
		return n
	}
	moved := false
	for i := range rows {
		moved = moved || !c.cells[head+i].has(rows[i].Seqs)
	}
	for i := len(rows); i < len(sources); i++ {
		moved = moved || sources[i] != int64(head+i) && !c.cells[head+i].free()
	}
	if moved {
		c.rearrange(head, rows, sources, ns)
	}
	for i := range rows {
		row, at := &rows[i], head+i
		c.cells[at].pos = row.Pos
		c.of[at].holds(at, row.First)
		c.of[at].holds(at, row.Pos)
		for _, seq := range row.Seqs {
			c.unseen.set(seq, false) // a sequence has one state
		}
		if !moved {
			c.note(Update, NotEvicted, firstOf(row.Seqs), row.Pos).Written++
		}
	}
	return 0
}

// state is a cell with its life.
type state struct {
	cell
	life *Life
}

// rearrange gives the rows their cells. A state whose sequences all are those of a row moves there with its life; a
// row whose sequences share a state with others, or have none, begins a life.
func (c *States) rearrange(head int, rows []StateRow, sources []int64, ns int64) {
	var placed seqSet
	for i := range rows {
		for _, seq := range rows[i].Seqs {
			placed.Add(seq)
		}
	}
	// others is the state of a cell without the sequences that are placed.
	others := func(at int) state {
		from := state{c.cells[at], c.of[at]}
		for seq := range placed.all() {
			from.seqs.drop(seq)
		}
		if from.seqs.empty() {
			return state{cell: emptyCell}
		}
		return from
	}
	next := make([]state, len(c.cells))
	for at := range next {
		next[at].cell = emptyCell
		if at < head || at >= head+max(len(rows), len(sources)) {
			next[at] = others(at)
		}
	}
	kept := map[int]bool{}
	for i := len(rows); i < len(sources); i++ { // the others of this stretch
		if from := int(sources[i]) % len(next); from >= 0 && !kept[from] {
			next[head+i] = others(from)
			kept[from] = true
		}
	}
	for i := range rows {
		row := state{cell: cell{pos: rows[i].Pos}}
		if at := slices.IndexFunc(c.cells, func(of cell) bool { return of.has(rows[i].Seqs) }); at >= 0 {
			row.life = c.of[at]
		}
		for _, seq := range rows[i].Seqs {
			row.seqs.Add(seq)
		}
		next[head+i] = row
	}
	c.settle(next, head, rows, ns)
}

// settle makes next the cells, and ends the lives that none of them has.
func (c *States) settle(next []state, head int, rows []StateRow, ns int64) {
	alive := map[*Life]bool{}
	for at := range next {
		alive[next[at].life] = true
	}
	for at, l := range c.of {
		if l != nil && !alive[l] {
			c.note(Evict, Overwrite, l.Seq, c.cells[at].pos)
			l.alive = 1
			c.leave(at, Overwrite, ns)
		}
	}
	c.used, c.shared, c.counts = 0, 0, [maxSeqs]int{}
	for at := range next {
		cell := &c.cells[at]
		*cell, c.of[at] = next[at].cell, next[at].life
		if cell.free() {
			continue
		}
		c.used++
		if cell.seqs.Len() > 1 {
			c.shared++
		}
		for seq := range cell.seqs.all() {
			c.counts[seq]++
		}
	}
	for at := range c.cells {
		cell, l := &c.cells[at], c.of[at]
		if cell.free() {
			continue
		}
		if l == nil {
			seq := firstOf(rows[at-head].Seqs)
			c.join(at, cell, seq, Written, ns)
			c.note(Allocate, NotEvicted, seq, cell.pos).Written++
			if seq < 0 {
				c.unseen.every()
			}
			continue
		}
		if l.Block != at {
			c.move(l, at)
			l.holds(at, cell.pos)
		}
		if change := c.note(Update, NotEvicted, l.Seq, cell.pos); at >= head && at < head+len(rows) {
			change.Written++
		}
	}
}

// Remove takes a sequence, or for -1 every one, from its state, if that lies within positions first ≤ p < end. If
// only the state's last positions are in the range, llama.cpp goes back to a state that it kept.
func (c *States) Remove(seq, first, end int32, ns int64) {
	if first, end = bounds(first, end); first == 0 && end == math.MaxInt32 {
		c.clear(seq, ns)
		return
	}
	for at := range c.cells {
		cell := &c.cells[at]
		inside := cell.inRange(first, end) || cell.pos == PosUnknown && first == 0
		switch {
		case cell.free() || !inside || seq >= 0 && !cell.seqs.Has(seq):
		case seq < 0:
			c.evict(at, SeqRm, ns)
		case first > 0:
			cell.pos = first - 1
			c.note(Update, NotEvicted, seq, cell.pos)
		default:
			c.drop(at, seq, SeqRm, ns)
		}
	}
}

// Copy makes a sequence share the state of another one, whatever the positions.
func (c *States) Copy(from, to, _, _ int32, ns int64) {
	if from == to {
		return
	}
	for at := range c.cells {
		c.drop(at, to, SeqRm, ns)
	}
	for at := range c.cells {
		if c.cells[at].seqs.Has(from) && c.give(at, to) {
			c.note(Update, NotEvicted, to, c.cells[at].pos)
		}
	}
	if c.unseen.has(from) {
		c.unseen.set(to, true)
	}
}

// Touch records that the parts of a group were read and written so many times for each of n states from head on. Only a
// state that was written before was read.
func (c *States) Touch(group, head, n int, m *Moment, write, read int64) {
	for at := head; at < min(head+n, len(c.of)); at++ {
		if c.of[at] == nil {
			continue
		}
		t := &c.of[at].Touches[group]
		if read > 0 && t.Writes > 0 {
			t.read(read, m)
		}
		if write > 0 {
			t.write(write, m)
		}
	}
}
