package ledger

import "github.com/llamatap/llamatap/memtrace"

// Hot path: per access a few additions, and no allocation in steady state.

// access is one of an execution.
type access struct {
	*operand
	span
	flags memtrace.TraceFlag // those of the operand, and of this access alone
	token int32              // number in the run
	seq   int32
	block int32 // of a cache
}

// visit calls f for every access of an execution, in the order of its ops, each op's sources before what it writes.
// What f is handed is used again.
func (r *Recorder) visit(x *execution, f func(*access) error) error {
	for i := range x.plan.items {
		if err := r.visitItem(x, &x.plan.items[i], f); err != nil {
			return err
		}
	}
	return nil
}

// visitItem calls f for every access of an item.
func (r *Recorder) visitItem(x *execution, it *item, f func(*access) error) error {
	a := &r.access
	*a = access{operand: &it.operand, flags: it.flags, token: x.token(0), seq: x.only, block: none}
	switch it.kind {
	case itemLookup:
		return r.looked(x, it, a, f)
	case itemExperts:
		return r.routed(x, it, a, f)
	case itemWritten:
		return r.wrote(x, it, a, f)
	case itemMasked:
		return r.attended(x, it, a, f)
	}
	return each(it.spans, a, f)
}

// each calls f for the spans of an access.
func each(spans []span, a *access, f func(*access) error) error {
	for i := range spans {
		a.span = spans[i]
		if err := f(a); err != nil {
			return err
		}
	}
	return nil
}

// unknown calls f for an access of which it is known how many bytes it may be, but not which: run bytes so many
// times, 0: not even that.
func unknown(it *item, run uint64, pieces int64, a *access, f func(*access) error) error {
	a.span = span{offset: it.at.offset, run: run, pieces: pieces, scattered: run > 0}
	if run == 0 {
		a.flags |= memtrace.TraceUnknown
	}
	return f(a)
}

// looked reads rows by their numbers.
func (r *Recorder) looked(x *execution, it *item, a *access, f func(*access) error) error {
	row := it.at.part(it.dim, 0, 1)
	ids, states, ok := x.numbers(&it.rows)
	if !ok {
		r.doubts.Untold++
		return unknown(it, row.bytes(), int64(it.rows.count), a, f)
	}
	for i := range it.rows.count {
		number := int64(0)
		if ids != nil {
			number = int64(ids[i])
		} else {
			number = states[i]
		}
		if number < 0 || number >= it.at.ne[it.dim] {
			r.doubts.Untold++
			continue
		}
		switch at := i + it.rows.first; it.rows.from {
		case lookOutputs:
			a.token, a.seq = x.token(int(number)), x.seq(int(number), int(number)+1)
		case lookStates:
			a.token, a.seq, a.block = none, none, int32(number)
		default:
			a.token, a.seq = x.token(at), x.seq(at, at+1)
		}
		part := it.at.part(it.dim, number, number+1)
		x.spans = part.spans(x.spans[:0])
		if err := each(x.spans, a, f); err != nil {
			return err
		}
	}
	return nil
}

// routed reads each chosen expert.
func (r *Recorder) routed(x *execution, it *item, a *access, f func(*access) error) error {
	experts, ok := x.experts.of(it.rows.by)
	if !ok {
		r.doubts.Untold++
		return unknown(it, 0, 1, a, f)
	}
	for _, e := range experts {
		if e < 0 || int64(e) >= it.at.ne[it.dim] {
			r.doubts.Untold++
			continue
		}
		part := it.at.part(it.dim, int64(e), int64(e)+1)
		x.spans = part.spans(x.spans[:0])
		if err := each(x.spans, a, f); err != nil {
			return err
		}
	}
	return nil
}

// blockOf is the block of a cache that cells of a stream lie in, none if they lie in several.
func (r *Recorder) blockOf(c *cells, stream, first, end int64) int32 {
	if c.size <= 0 || first/r.o.Block != (end-1)/r.o.Block {
		return none
	}
	return int32(stream*((c.size+r.o.Block-1)/r.o.Block) + first/r.o.Block)
}

// wrote writes the cell of each token.
func (r *Recorder) wrote(x *execution, it *item, a *access, f func(*access) error) error {
	numbers, ok := x.cells.of(it.cells.leaf)
	run := it.at.block * uint64(it.at.ne[0])
	if !ok || len(numbers) != len(x.tokens) || it.cells.size <= 0 {
		r.doubts.Untold++
		return unknown(it, run, it.cells.width*int64(len(x.tokens)), a, f)
	}
	for row, number := range numbers {
		stream, cell := number/it.cells.size, number%it.cells.size
		if number < 0 {
			r.doubts.Untold++
			continue
		}
		a.token, a.seq, a.block = x.token(row), x.seq(row, row+1), r.blockOf(&it.cells, stream, cell, cell+1)
		a.span = span{offset: it.at.offset + uint64(stream)*it.cells.plane + uint64(cell)*it.at.nb[1], run: run, pieces: it.cells.width}
		if it.cells.width > 1 {
			a.stride = uint64(it.cells.size) * it.at.nb[1]
		}
		if err := f(a); err != nil {
			return err
		}
	}
	return nil
}

// attended reads the cells that a mask shows, and then those that it hides.
func (r *Recorder) attended(x *execution, it *item, a *access, f func(*access) error) error {
	ranges, ok := x.masks.of(it.cells.leaf)
	if !ok {
		r.doubts.Untold++
		x.spans = it.at.spans(x.spans[:0])
		return each(x.spans, a, f)
	}
	per := len(x.tokens) / int(it.cells.streams)
	for stream := range it.cells.streams {
		first := int(stream) * per
		a.token, a.seq = x.token(first), x.seq(first, first+per)
		shown := int64(0)
		for len(ranges) > 0 && ranges[0].stream == stream {
			if err := r.cellsOf(x, it, a, ranges[0], f); err != nil {
				return err
			}
			shown += ranges[0].end - ranges[0].first
			ranges = ranges[1:]
		}
		if shown == it.at.ne[it.dim] {
			continue
		}
		if err := r.hidden(x, it, a, stream, f); err != nil {
			return err
		}
	}
	return nil
}

// hidden reads the cells of a stream that a mask hides.
func (r *Recorder) hidden(x *execution, it *item, a *access, stream int64, f func(*access) error) error {
	ranges, _ := x.masks.of(it.cells.leaf)
	flags, at := a.flags, int64(0)
	a.flags |= memtrace.TracePadded
	for _, c := range ranges {
		if c.stream != stream {
			continue
		}
		if err := r.cellsOf(x, it, a, cellRange{stream, at, c.first}, f); err != nil {
			return err
		}
		at = c.end
	}
	err := r.cellsOf(x, it, a, cellRange{stream, at, it.at.ne[it.dim]}, f)
	a.flags = flags
	return err
}

// cellsOf reads neighbouring cells of a stream.
func (r *Recorder) cellsOf(x *execution, it *item, a *access, c cellRange, f func(*access) error) error {
	end := min(c.end, it.at.ne[it.dim])
	if c.first >= end || c.first < 0 {
		return nil
	}
	part := it.at.part(3, c.stream, c.stream+1).part(it.dim, c.first, end)
	a.block = none
	if it.cells.plane > 0 && part.offset >= it.cells.origin {
		a.block = r.blockOf(&it.cells, int64((part.offset-it.cells.origin)/it.cells.plane), c.first, end)
	}
	x.spans = part.spans(x.spans[:0])
	return each(x.spans, a, f)
}
