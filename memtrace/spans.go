package memtrace

import (
	"slices"
	"sort"
)

// spans finds what is live at an address and a time: pieces of the address space, each with its history.
type spans struct {
	segments []segment // by address, disjoint; nothing was ever live between them
}

// segment is a range of addresses that always belonged to the same regions.
type segment struct {
	start, end uint64
	epochs     []epoch // by time
}

// epoch is what is live in a segment from a time on. live is never changed, only replaced.
type epoch struct {
	ns   int64
	live []int
}

// add makes a number live at addresses start ≤ a < end from a time on. Times need not come in order.
func (s *spans) add(start, end uint64, number int, from int64) {
	s.cover(start, end)
	s.each(start, end, func(g *segment) {
		for i := g.epoch(from); i < len(g.epochs); i++ {
			live := g.epochs[i].live
			g.epochs[i].live = append(live[:len(live):len(live)], number)
		}
	})
}

// end removes a region from the live ones of a range of addresses, from time to on.
func (s *spans) end(start, end uint64, number int, to int64) {
	s.each(start, end, func(g *segment) {
		for i := g.epoch(to); i < len(g.epochs); i++ {
			if at := slices.Index(g.epochs[i].live, number); at >= 0 {
				g.epochs[i].live = slices.Delete(slices.Clone(g.epochs[i].live), at, at+1)
			}
		}
	})
}

// at returns what is live, which may not be changed.
func (s *spans) at(addr uint64, ns int64) []int {
	i := s.search(addr)
	if i == len(s.segments) || s.segments[i].start > addr {
		return nil
	}
	epochs := s.segments[i].epochs
	k := sort.Search(len(epochs), func(k int) bool { return epochs[k].ns > ns })
	if k == 0 {
		return nil
	}
	return epochs[k-1].live
}

// search is the first segment that ends after an address.
func (s *spans) search(addr uint64) int {
	return sort.Search(len(s.segments), func(i int) bool { return s.segments[i].end > addr })
}

// each calls f for the segments of addresses that are covered.
func (s *spans) each(start, end uint64, f func(*segment)) {
	for i := s.search(start); i < len(s.segments) && s.segments[i].start < end; i++ {
		f(&s.segments[i])
	}
}

// cover cuts segments at both ends of addresses, and makes those that are missing between.
func (s *spans) cover(start, end uint64) {
	s.cut(start)
	s.cut(end)
	i := s.search(start)
	for at := start; at < end; i++ {
		if i < len(s.segments) && s.segments[i].start == at {
			at = s.segments[i].end
			continue
		}
		stop := end
		if i < len(s.segments) {
			stop = min(stop, s.segments[i].start)
		}
		s.segments = slices.Insert(s.segments, i, segment{start: at, end: stop})
		at = stop
	}
}

// cut makes an address the beginning of a segment, if one has it inside.
func (s *spans) cut(addr uint64) {
	i := s.search(addr)
	if i == len(s.segments) || s.segments[i].start >= addr {
		return
	}
	g := &s.segments[i]
	behind := segment{start: addr, end: g.end, epochs: slices.Clone(g.epochs)}
	g.end = addr
	s.segments = slices.Insert(s.segments, i+1, behind)
}

// epoch is the number of the epoch that begins at a time, which is made if there is none.
func (g *segment) epoch(ns int64) int {
	i := sort.Search(len(g.epochs), func(i int) bool { return g.epochs[i].ns >= ns })
	if i < len(g.epochs) && g.epochs[i].ns == ns {
		return i
	}
	next := epoch{ns: ns}
	if i > 0 {
		next.live = g.epochs[i-1].live
	}
	g.epochs = slices.Insert(g.epochs, i, next)
	return i
}
