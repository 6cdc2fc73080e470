package memtrace

import "math/bits"

// Footprint is what executions of graphs touched in the host's memory: which bytes in the newest one, and which
// pages were written since somebody asked, by type of region. The zero value is empty.
type Footprint struct {
	execution int64
	touched   runs[int64] // execution in which bytes were touched last
	wrote     runs[int64] // and written
	pages     [regionTypes]Pages
	scratch   []run[int64]
}

// Begin begins an execution. Their numbers differ.
func (f *Footprint) Begin(execution int64) { f.execution = execution }

// Add takes an access in whose Offset is an address. One of more pieces than can be followed counts as all bytes
// from the first to the last.
func (f *Footprint) Add(a *Touch) {
	if a.isDamaged() {
		return
	}
	pieces := uint64(max(a.Pieces, 1))
	if pieces > maxFootprintPieces {
		a = &Touch{Op: a.Op, Type: a.Type, Offset: a.Offset, Size: (pieces-1)*a.Stride + a.Size/pieces}
		pieces = 1
	}
	each := a.Size / pieces
	for i := range pieces {
		start := a.Offset + i*a.Stride
		end := start + each
		if end <= start {
			return
		}
		if end-start > maxPageRange {
			end = start + maxPageRange
		}
		f.scratch = f.touched.put(start, end, f.execution, f.scratch[:0])
		if a.Op == OpWrite {
			f.scratch = f.wrote.put(start, end, f.execution, f.scratch[:0])
			f.pages[a.Type].Add(start, end)
		}
	}
}

const (
	maxFootprintPieces = 1 << 16
	maxPageRange       = 1 << 40 // bytes of a piece that are followed
)

// Forget forgets what was touched where memory comes or goes.
func (f *Footprint) Forget(start, end uint64) {
	if start < end {
		f.scratch = f.touched.cutOut(start, end, f.scratch[:0])
		f.scratch = f.wrote.cutOut(start, end, f.scratch[:0])
	}
}

// Touched reports whether the newest execution touched any byte of a range, or wrote it.
func (f *Footprint) Touched(start, end uint64, write bool) bool {
	all := &f.touched
	if write {
		all = &f.wrote
	}
	f.scratch = all.get(start, end, f.scratch[:0])
	for i := range f.scratch {
		if f.scratch[i].is == f.execution {
			return true
		}
	}
	return false
}

// TakeWritten are the pages that were written in regions of some types since it was called last.
func (f *Footprint) TakeWritten(types ...RegionType) *Pages {
	all := &Pages{}
	for _, t := range types {
		all.Merge(&f.pages[t])
		f.pages[t] = Pages{}
	}
	return all
}

// Pages is a set of pages of PageBytes. The zero value is empty.
type Pages struct {
	chunks map[uint64]*[pagesPerChunk / 64]uint64
}

// Add adds the pages that hold any byte of a range.
func (p *Pages) Add(start, end uint64) {
	for page := start / PageBytes; start < end && page <= (end-1)/PageBytes; page++ {
		p.add(page)
	}
}

// add adds a page by its number, and reports whether it was not there before.
func (p *Pages) add(page uint64) bool {
	if p.chunks == nil {
		p.chunks = map[uint64]*[pagesPerChunk / 64]uint64{}
	}
	chunk := p.chunks[page/pagesPerChunk]
	if chunk == nil {
		chunk = new([pagesPerChunk / 64]uint64)
		p.chunks[page/pagesPerChunk] = chunk
	}
	word, bit := &chunk[page%pagesPerChunk/64], uint64(1)<<(page%64)
	isNew := *word&bit == 0
	*word |= bit
	return isNew
}

// Merge takes the pages of another set in.
func (p *Pages) Merge(o *Pages) {
	for at, chunk := range o.chunks {
		if p.chunks == nil {
			p.chunks = map[uint64]*[pagesPerChunk / 64]uint64{}
		}
		if p.chunks[at] == nil {
			p.chunks[at] = new([pagesPerChunk / 64]uint64)
		}
		for i, word := range chunk {
			p.chunks[at][i] |= word
		}
	}
}

// Count is the number of pages.
func (p *Pages) Count() (n int64) {
	for _, chunk := range p.chunks {
		for _, word := range chunk {
			n += int64(bits.OnesCount64(word))
		}
	}
	return n
}

// And are the pages that another set has too.
func (p *Pages) And(o *Pages) *Pages {
	both := &Pages{chunks: map[uint64]*[pagesPerChunk / 64]uint64{}}
	for at, chunk := range p.chunks {
		other := o.chunks[at]
		if other == nil {
			continue
		}
		kept := new([pagesPerChunk / 64]uint64)
		for i := range chunk {
			kept[i] = chunk[i] & other[i]
		}
		both.chunks[at] = kept
	}
	return both
}
