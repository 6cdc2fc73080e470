package stream

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
)

// Bounds of a page. Its records are read together when one of them is asked for.
const (
	pageBytes   = 64 << 10
	pageRecords = 256 // packets, or executions
)

// page is a stretch of an index without damage. Of an index these are what is in memory, and of their records nothing.
type page struct {
	at, end     int64  // in the index
	chain       uint32 // checksum that its first record continues
	packets     int32
	executions  int32
	first       int    // number of its first packet
	least, most uint64 // of its executions' numbers
}

// pages is where packets and executions of an index lie, and those of its pages that were looked at last.
type pages struct {
	in     io.ReaderAt
	all    []page
	byExec []int32  // those with executions, by their least number
	most   []uint64 // largest number of an execution up to there, in that order

	mu     sync.Mutex // of what follows
	loaded [4]loaded
	turn   int
}

// loaded is a page in memory.
type loaded struct {
	number     int // −1: none
	data       []byte
	packets    []int32 // where their records are
	executions []int32
}

func newPages(in io.ReaderAt) *pages {
	p := &pages{in: in}
	for i := range p.loaded {
		p.loaded[i].number = -1
	}
	return p
}

// add notes a record that was found sound.
func (p *pages) add(r record, at int64, packets uint64) {
	last := len(p.all) - 1
	if last < 0 || p.all[last].end != at || p.all[last].end-p.all[last].at >= pageBytes ||
		max(p.all[last].packets, p.all[last].executions) >= pageRecords {
		p.all = append(p.all, page{at: at, chain: r.chain, first: int(packets)})
		last++
	}
	g := &p.all[last]
	g.end = at + int64(r.size())
	switch r.kind {
	case recordPacket:
		g.packets++
	case recordExecution:
		exec, _ := binary.Uvarint(r.payload)
		if g.executions++; g.executions == 1 {
			g.least, g.most = exec, exec
		}
		g.least, g.most = min(g.least, exec), max(g.most, exec)
	}
}

// finish puts the pages in order when all records were added.
func (p *pages) finish() {
	for i := range p.all {
		if p.all[i].executions > 0 {
			p.byExec = append(p.byExec, int32(i))
		}
	}
	slices.SortStableFunc(p.byExec, func(a, b int32) int { return cmp.Compare(p.all[a].least, p.all[b].least) })
	most := uint64(0)
	for _, i := range p.byExec {
		most = max(most, p.all[i].most)
		p.most = append(p.most, most)
	}
}

// packet returns the record of packet i and its place. mu is held, and the record valid as long.
func (p *pages) packet(i int) (r record, at int64, err error) {
	n := sort.Search(len(p.all), func(k int) bool { return p.all[k].first > i }) - 1
	l, err := p.load(n)
	if err != nil {
		return r, 0, err
	}
	r, at = p.record(l, l.packets[i-p.all[n].first])
	return r, at, nil
}

// record is the record at a place of a page, and its place in the index.
func (p *pages) record(l *loaded, at int32) (record, int64) {
	r, _ := parseRecord(l.data[at:])
	return r, p.all[l.number].at + int64(at)
}

// load brings a page into memory, with mu held.
func (p *pages) load(number int) (*loaded, error) {
	for i := range p.loaded {
		if p.loaded[i].number == number {
			return &p.loaded[i], nil
		}
	}
	p.turn = (p.turn + 1) % len(p.loaded)
	l, g := &p.loaded[p.turn], &p.all[number]
	l.number, l.packets, l.executions = -1, l.packets[:0], l.executions[:0]
	size := int(g.end - g.at)
	if cap(l.data) < size || cap(l.data) > max(size, 4*pageBytes) {
		l.data = make([]byte, size+size/4)
	}
	l.data = l.data[:size]
	if err := readAt(p.in, l.data, g.at); err != nil {
		return nil, fmt.Errorf("read index at byte %d: %w", g.at, err)
	}
	chain := g.chain
	for at := 0; at < size; {
		r, ok := parseRecord(l.data[at:])
		if !ok || !r.follows(chain) {
			return nil, fmt.Errorf("index: %w: byte %d is not what it was when the file was opened", ErrCorrupt,
				g.at+int64(at))
		}
		switch r.kind {
		case recordPacket:
			l.packets = append(l.packets, int32(at))
		case recordExecution:
			l.executions = append(l.executions, int32(at))
		}
		at, chain = at+r.size(), r.crc
	}
	l.number = number
	return l, nil
}

// execution returns the first record, in the order of the file, of an execution, and its place; false if there is
// none. mu is held, and the record valid as long.
func (p *pages) execution(exec uint64) (r record, at int64, found bool, err error) {
	best := -1
	for n := sort.Search(len(p.byExec), func(k int) bool { return p.all[p.byExec[k]].least > exec }) - 1; n >= 0 &&
		p.most[n] >= exec; n-- {
		if i := int(p.byExec[n]); p.all[i].most >= exec && (best < 0 || i < best) {
			l, err := p.load(i)
			if err != nil {
				return r, 0, false, err
			}
			if l.holds(exec) >= 0 {
				best = i
			}
		}
	}
	if best < 0 {
		return r, 0, false, nil
	}
	l, err := p.load(best)
	if err != nil {
		return r, 0, false, err
	}
	r, at = p.record(l, l.holds(exec))
	return r, at, true, nil
}

// holds is the place of an execution's first record, or −1.
func (l *loaded) holds(exec uint64) int32 {
	for _, at := range l.executions {
		if n, _ := binary.Uvarint(l.data[at+recordHeader:]); n == exec {
			return at
		}
	}
	return -1
}

// placedExecution is the place of an execution's record.
type placedExecution struct {
	exec uint64
	page int32
	at   int32
}

// executions calls use with every execution's record, mu held, and then more, which says whether to continue: by their
// numbers, and those of one number in the order of the file. Pages whose numbers overlap are looked at together:
// where contexts compute at once, these are few.
func (p *pages) executions(use func(r record, at int64) error, more func() bool) error {
	var placed []placedExecution
	for i := 0; i < len(p.byExec); {
		end := i + 1
		for end < len(p.byExec) && p.all[p.byExec[end]].least <= p.most[end-1] {
			end++
		}
		group := slices.Sorted(slices.Values(p.byExec[i:end]))
		i, placed = end, placed[:0]
		for _, n := range group {
			var err error
			if placed, err = p.appendExecutions(placed, n); err != nil {
				return err
			}
		}
		slices.SortStableFunc(placed, func(a, b placedExecution) int { return cmp.Compare(a.exec, b.exec) })
		for k := range placed {
			if err := p.placed(&placed[k], use); err != nil || !more() {
				return err
			}
		}
	}
	return nil
}

// appendExecutions appends the places of a page's executions.
func (p *pages) appendExecutions(dst []placedExecution, number int32) ([]placedExecution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.load(int(number))
	if err != nil {
		return dst, err
	}
	for _, at := range l.executions {
		exec, _ := binary.Uvarint(l.data[at+recordHeader:])
		dst = append(dst, placedExecution{exec, number, at})
	}
	return dst, nil
}

func (p *pages) placed(e *placedExecution, use func(r record, at int64) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.load(int(e.page))
	if err != nil {
		return err
	}
	return use(p.record(l, e.at))
}
