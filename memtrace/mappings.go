package memtrace

import (
	"cmp"
	"slices"
	"sort"
)

// Mappings follows what a process has mapped, by what the kernel reports of each mapping when it is made, and by
// looking now and then, which also shows what is gone. It keeps a [RegionMap] up to date: one piece of memory stays
// one region while it is there. It is for one goroutine.
type Mappings struct {
	m    *RegionMap
	live []Mapping // by address, disjoint
	free []Mapping // memory for those that come next
}

// NewMappings makes one that keeps m.
func NewMappings(m *RegionMap) *Mappings { return &Mappings{m: m} }

// Map records that the process has mapped something at a time, in the place of what was there. What lies there as part
// of the same, such as a heap that grows, stays.
func (k *Mappings) Map(ns int64, p Mapping) {
	if p.Start >= p.End {
		return
	}
	first := k.after(p.Start)
	last := first
	kept := append(k.free[:0], k.live[:first]...)
	var same, behind []Mapping
	for ; last < len(k.live) && k.live[last].Start < p.End; last++ {
		old := k.live[last]
		if old.part(p) {
			same = append(same, old)
			continue
		}
		kept = append(kept, old.Cut(old.Start, min(p.Start, old.End))...)
		behind = append(behind, old.Cut(max(p.End, old.Start), old.End)...)
	}
	kept = append(append(kept, p.splitAround(same)...), behind...)
	k.set(ns, append(kept, k.live[last:]...))
}

// after is the number of the first mapping that ends after an address.
func (k *Mappings) after(addr uint64) int {
	return sort.Search(len(k.live), func(i int) bool { return k.live[i].End > addr })
}

// Look says what is mapped at a time, all of it, by address.
func (k *Mappings) Look(ns int64, mappings []Mapping) {
	kept := k.free[:0]
	for _, p := range mappings {
		var same []Mapping
		for i := k.after(p.Start); i < len(k.live) && k.live[i].Start < p.End; i++ {
			if old := &k.live[i]; old.alike(&p) {
				same = append(same, old.Cut(max(old.Start, p.Start), min(old.End, p.End))...)
			}
		}
		kept = append(kept, p.splitAround(same)...)
	}
	k.set(ns, kept)
}

// Clear records that nothing is mapped any more: the process has become another program.
func (k *Mappings) Clear(ns int64) { k.set(ns, nil) }

func (k *Mappings) set(ns int64, mappings []Mapping) {
	sortMappings(mappings)
	k.live, k.free = mappings, k.live
	k.m.SetMappings(ns, mappings)
}

// sortMappings puts mappings in the order of addresses, in which they mostly are.
func sortMappings(mappings []Mapping) {
	for i := 1; i < len(mappings); i++ {
		if mappings[i].Start < mappings[i-1].Start {
			slices.SortFunc(mappings, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
			return
		}
	}
}

// Live is what is mapped, by address. It may not be changed, and is valid until something changes.
func (k *Mappings) Live() []Mapping { return k.live }

// Executable reports whether instructions lie in a mapping.
func (p *Mapping) Executable() bool { return len(p.Perms) == 4 && p.Perms[2] == 'x' }

// part reports whether p shows the same memory where both lie: of one file at one place, or of none.
func (p *Mapping) part(o Mapping) bool {
	if !p.alike(&o) {
		return false
	}
	return p.Path == "" || p.Path[0] == '[' || p.Offset-p.Start == o.Offset-o.Start
}

// alike reports whether two mappings may be parts of one.
func (p *Mapping) alike(o *Mapping) bool {
	return p.Path == o.Path && p.Static == o.Static && p.Executable() == o.Executable()
}

// Cut is the part of a mapping from start to end; none where there is nothing of it.
func (p *Mapping) Cut(start, end uint64) []Mapping {
	if start >= end {
		return nil
	}
	part := *p
	part.Start, part.End = start, end
	if p.Path != "" && p.Path[0] != '[' {
		part.Offset += start - p.Start
	}
	return []Mapping{part}
}

// splitAround returns a mapping as the pieces that are there already, by address, and new ones between them.
func (p *Mapping) splitAround(there []Mapping) []Mapping {
	var mappings []Mapping
	at := p.Start
	for _, old := range there {
		mappings = append(append(mappings, p.Cut(at, old.Start)...), old)
		at = max(at, old.End)
	}
	return append(mappings, p.Cut(at, p.End)...)
}
