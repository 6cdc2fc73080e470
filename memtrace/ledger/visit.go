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
	ns    int64 // of a copy: when it began
}

// visitor finds the accesses of an execution, each op's sources before what it writes.
type visitor struct {
	block  int64 // how many cells a block of a cache has
	doubts *memtrace.Ledger
	emit   func(*execution, *access) error // takes an access, whose memory is used again
	// What is being visited.
	x     *execution
	it    *item
	a     access
	spans []span
}

// visit emits every access of an item.
func (v *visitor) visit(x *execution, it *item) error {
	v.x, v.it = x, it
	v.a = access{operand: &it.operand, flags: it.flags, token: x.token(0), seq: x.only, block: none}
	switch it.kind {
	case itemLookup:
		return v.lookup()
	case itemExperts:
		return v.experts()
	case itemWritten:
		return v.written()
	case itemMasked:
		return v.masked()
	}
	return v.emitSpans(it.spans)
}

// emitSpans emits an access for each of some spans.
func (v *visitor) emitSpans(spans []span) error {
	for i := range spans {
		v.a.span = spans[i]
		if err := v.emit(v.x, &v.a); err != nil {
			return err
		}
	}
	return nil
}

// part emits the accesses of a part of the operand.
func (v *visitor) part(part extent) error {
	v.spans = part.spans(v.spans[:0])
	return v.emitSpans(v.spans)
}

// unknown emits an access of which it is known how many bytes it may be, but not which: run bytes so many times, 0:
// not even that.
func (v *visitor) unknown(run uint64, pieces int64) error {
	v.doubts.Unreported++
	v.a.span = span{offset: v.it.at.offset, run: run, pieces: pieces, scattered: run > 0}
	if run == 0 {
		v.a.flags |= memtrace.TraceUnknown
	}
	return v.emit(v.x, &v.a)
}

// lookup emits reads of rows by their numbers.
func (v *visitor) lookup() error {
	x, it := v.x, v.it
	ids, states, ok := x.numbers(&it.rows)
	if !ok {
		row := it.at.part(it.dim, 0, 1)
		return v.unknown(row.bytes(), int64(it.rows.count))
	}
	for i := range it.rows.count {
		number := int64(0)
		if ids != nil {
			number = int64(ids[i])
		} else {
			number = states[i]
		}
		if number < 0 || number >= it.at.ne[it.dim] {
			v.doubts.Unreported++
			continue
		}
		switch at := i + it.rows.first; it.rows.from {
		case lookOutputs:
			v.a.token, v.a.seq = x.token(int(number)), x.seq(int(number), int(number)+1)
		case lookStates:
			v.a.token, v.a.seq, v.a.block = none, none, int32(number)
		default:
			v.a.token, v.a.seq = x.token(at), x.seq(at, at+1)
		}
		if err := v.part(it.at.part(it.dim, number, number+1)); err != nil {
			return err
		}
	}
	return nil
}

// experts emits a read of each chosen expert.
func (v *visitor) experts() error {
	experts, ok := v.x.experts.reportsOf(v.it.rows.by)
	if !ok {
		return v.unknown(0, 1)
	}
	for _, e := range experts {
		if e < 0 || int64(e) >= v.it.at.ne[v.it.dim] {
			v.doubts.Unreported++
			continue
		}
		if err := v.part(v.it.at.part(v.it.dim, int64(e), int64(e)+1)); err != nil {
			return err
		}
	}
	return nil
}

// blockOf is the block of a cache that cells of a stream lie in, none if they lie in several.
func (v *visitor) blockOf(stream, first, end int64) int32 {
	size := v.it.cells.size
	if size <= 0 || first/v.block != (end-1)/v.block {
		return none
	}
	return int32(stream*((size+v.block-1)/v.block) + first/v.block)
}

// written emits a write of the cell of each token.
func (v *visitor) written() error {
	x, it := v.x, v.it
	numbers, ok := x.cells.reportsOf(it.cells.leaf)
	run := it.at.block * uint64(it.at.ne[0])
	if !ok || len(numbers) != len(x.tokens) || it.cells.size <= 0 {
		return v.unknown(run, it.cells.width*int64(len(x.tokens)))
	}
	for row, number := range numbers {
		stream, cell := number/it.cells.size, number%it.cells.size
		if number < 0 {
			v.doubts.Unreported++
			continue
		}
		a := &v.a
		a.token, a.seq, a.block = x.token(row), x.seq(row, row+1), v.blockOf(stream, cell, cell+1)
		offset := it.at.offset + uint64(stream)*it.cells.plane + uint64(cell)*it.at.nb[1]
		a.span = span{offset: offset, run: run, pieces: it.cells.width}
		if it.cells.width > 1 {
			a.stride = uint64(it.cells.size) * it.at.nb[1]
		}
		if err := v.emit(x, a); err != nil {
			return err
		}
	}
	return nil
}

// masked emits reads of the cells that a mask shows, stream by stream, and then of those that it hides.
func (v *visitor) masked() error {
	x, it := v.x, v.it
	ranges, ok := x.masks.reportsOf(it.cells.leaf)
	if !ok {
		v.doubts.Unreported++
		return v.part(it.at)
	}
	per := len(x.tokens) / int(it.cells.streams)
	for stream := range it.cells.streams {
		n := 0
		for n < len(ranges) && ranges[n].stream == stream {
			n++
		}
		first := int(stream) * per
		v.a.token, v.a.seq = x.token(first), x.seq(first, first+per)
		if err := v.shownAndHidden(stream, ranges[:n]); err != nil {
			return err
		}
		ranges = ranges[n:]
	}
	return nil
}

// shownAndHidden emits reads of the cells of a stream in ranges, and then of all others.
func (v *visitor) shownAndHidden(stream int64, ranges []cellRange) error {
	for _, c := range ranges {
		if err := v.cells(c); err != nil {
			return err
		}
	}
	flags := v.a.flags
	v.a.flags |= memtrace.TracePadded
	at := int64(0)
	for _, c := range ranges {
		if err := v.cells(cellRange{stream, at, c.first}); err != nil {
			return err
		}
		at = c.end
	}
	err := v.cells(cellRange{stream, at, v.it.at.ne[v.it.dim]})
	v.a.flags = flags
	return err
}

// cells emits a read of neighbouring cells of a stream.
func (v *visitor) cells(c cellRange) error {
	it := v.it
	end := min(c.end, it.at.ne[it.dim])
	if c.first >= end || c.first < 0 {
		return nil
	}
	part := it.at.part(3, c.stream, c.stream+1).part(it.dim, c.first, end)
	v.a.block = none
	if it.cells.plane > 0 && part.offset >= it.cells.origin {
		v.a.block = v.blockOf(int64((part.offset-it.cells.origin)/it.cells.plane), c.first, end)
	}
	return v.part(part)
}
