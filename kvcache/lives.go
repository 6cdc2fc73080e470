package kvcache

// lives are the lives of a cache's cells, by block, and how often each was written and read.
type lives struct {
	Shape
	Parts []Part
	// Ended gets each life that ends, which it may keep.
	Ended func(*Life)

	of     []*Life // of each cell; nil: it is free
	blocks []*Life // of each block, newest first
	groups [][]int // parts that were always touched together
}

func newLives(s Shape) lives {
	return lives{
		Shape: s, Ended: func(*Life) {}, of: make([]*Life, s.Cells()),
		blocks: make([]*Life, s.Streams*s.blocksPerStream()),
	}
}

// eachLife calls f with every life that has not ended.
func (v *lives) eachLife(f func(*Life)) {
	for _, l := range v.blocks {
		for ; l != nil; l = l.next {
			f(l)
		}
	}
}

// join makes a cell, which was written by a sequence, one of a life of its block.
func (v *lives) join(at int, cell *cell, seq int32, origin Origin, ns int64) {
	block := v.blockOf(at)
	l := v.blocks[block]
	for l != nil && (l.closed || l.Seq != seq || l.Origin != origin) {
		l = l.next
	}
	if l == nil {
		l = &Life{
			Block: block, Seq: seq, PosFirst: PosUnknown, PosEnd: PosUnknown, Origin: origin, AllocNS: ns,
			Touches: make([]Touch, len(v.groups)), next: v.blocks[block],
		}
		v.blocks[block] = l
	}
	l.alive++
	l.Cells = max(l.Cells, l.alive)
	l.Sharers = max(l.Sharers, cell.seqs.Len())
	l.holds(at, cell.pos)
	v.of[at] = l
}

// leave takes a cell from its life, and ends that if it was its last.
func (v *lives) leave(at int, why Reason, ns int64) {
	l := v.of[at]
	v.of[at] = nil
	if l == nil {
		return
	}
	if why == Overwrite {
		l.closed = true
	}
	if l.alive--; l.alive == 0 {
		v.end(l, why, ns)
	}
}

// move makes a life that of another block, of one cell.
func (v *lives) move(l *Life, block int) {
	v.unlink(l)
	l.Block, l.next = block, v.blocks[block]
	v.blocks[block] = l
}

func (v *lives) unlink(l *Life) {
	for at := &v.blocks[l.Block]; *at != nil; at = &(*at).next {
		if *at == l {
			*at = l.next
			break
		}
	}
	l.next = nil
}

func (v *lives) end(l *Life, why Reason, ns int64) {
	l.EndNS, l.Reason = ns, why
	v.unlink(l)
	v.Ended(l)
}

// Wrote records that the rows of a micro-batch, which were placed, were written n times to the parts of a group.
func (v *lives) Wrote(group int, rows []Row, m *Moment, n int64) {
	for i := range rows {
		if at := rows[i].Cell; at >= 0 && at < len(v.of) && v.of[at] != nil {
			v.of[at].Touches[group].write(n, m)
		}
	}
}

// Read records that the parts of a group were read n times in an execution: those cells of a stream that some token of
// it was allowed to read.
func (v *lives) Read(group, stream int, cells *Bitmap, m *Moment, n int64) {
	if stream < 0 || stream >= v.Streams {
		return
	}
	per := v.blocksPerStream()
	for block := stream * per; block < (stream+1)*per; block++ {
		if v.blocks[block] == nil {
			continue
		}
		first, end := v.blockCells(block)
		offset := stream * v.Size
		switch readable := cells.count(first-offset, end-offset); {
		case readable == 0:
		case readable == end-first:
			for l := v.blocks[block]; l != nil; l = l.next {
				l.Touches[group].read(n*int64(l.alive), m)
			}
		default:
			for at := first; at < end; at++ {
				if cells.has(at-offset) && v.of[at] != nil {
					v.of[at].Touches[group].read(n, m)
				}
			}
		}
	}
}

// Refine sorts the parts of the cache into groups: parts of one group have been touched together so far, and have
// the same key now. Keys stand in the order of Parts; those of parts that are new must be among them. It returns
// true if the groups changed.
func (v *lives) Refine(keys []string) bool {
	before, grouped := len(v.groups), 0
	for g := 0; g < len(v.groups); g++ {
		group := v.groups[g]
		kept, split := group[:0:0], group[:0:0]
		for _, part := range group {
			if keys[part] == keys[group[0]] {
				kept = append(kept, part)
			} else {
				split = append(split, part)
			}
		}
		if grouped += len(kept); len(split) > 0 {
			v.groups[g] = kept
			v.groups = append(v.groups, split)
			v.eachLife(func(l *Life) { l.Touches = append(l.Touches, l.Touches[g]) })
		}
	}
	made := map[string]int{} // groups of parts that had none
	for part := grouped; part < len(v.Parts); part++ {
		g, ok := made[keys[part]]
		if !ok {
			g = len(v.groups)
			made[keys[part]] = g
			v.groups = append(v.groups, nil)
			v.eachLife(func(l *Life) { l.Touches = append(l.Touches, Touch{}) })
		}
		v.groups[g] = append(v.groups[g], part)
	}
	return len(v.groups) != before
}

// Groups are the parts, by number, that were always touched together. A life has one Touch for each.
func (v *lives) Groups() [][]int { return v.groups }
