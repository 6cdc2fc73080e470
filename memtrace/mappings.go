package memtrace

import (
	"cmp"
	"slices"
)

// Mappings follows what a process has mapped, by what the kernel tells of each mapping when it is made, and by looking now and then, which also
// shows what is gone. It keeps a [RegionMap] up to date: one piece of memory stays one region while it is there. It is for one goroutine.
type Mappings struct {
	m    *RegionMap
	live []Mapping // by address, disjoint
}

// NewMappings makes one that keeps m.
func NewMappings(m *RegionMap) *Mappings { return &Mappings{m: m} }

// Map says that the process has mapped something at a time, in the place of what was there. What lies there as part of the same, such as a heap
// that grows, stays.
func (k *Mappings) Map(ns int64, p Mapping) {
	if p.Start >= p.End {
		return
	}
	kept := make([]Mapping, 0, len(k.live)+3)
	var same []Mapping
	for _, old := range k.live {
		switch {
		case old.End <= p.Start || old.Start >= p.End:
			kept = append(kept, old)
		case old.part(p):
			same = append(same, old)
		default:
			kept = append(kept, old.cut(old.Start, p.Start)...)
			kept = append(kept, old.cut(p.End, old.End)...)
		}
	}
	k.set(ns, append(kept, p.beside(same)...))
}

// Look says what is mapped at a time, all of it.
func (k *Mappings) Look(ns int64, all []Mapping) {
	var kept []Mapping
	for _, p := range all {
		var same []Mapping
		for _, old := range k.live {
			if old.Start < p.End && old.End > p.Start && old.alike(&p) {
				same = append(same, old.cut(max(old.Start, p.Start), min(old.End, p.End))...)
			}
		}
		kept = append(kept, p.beside(same)...)
	}
	k.set(ns, kept)
}

// Clear says that nothing is mapped any more: the process has become another program.
func (k *Mappings) Clear(ns int64) { k.set(ns, nil) }

func (k *Mappings) set(ns int64, all []Mapping) {
	slices.SortFunc(all, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	k.live = all
	k.m.SetMappings(ns, all)
}

// Live is what is mapped, by address. It may not be changed.
func (k *Mappings) Live() []Mapping { return k.live }

func executable(p *Mapping) bool { return len(p.Perms) == 4 && p.Perms[2] == 'x' }

// part tells whether p shows the same memory where both lie: of one file at one place, or of none.
func (p *Mapping) part(o Mapping) bool {
	if !p.alike(&o) {
		return false
	}
	return p.Path == "" || p.Path[0] == '[' || p.Offset-p.Start == o.Offset-o.Start
}

// alike tells whether two mappings may be parts of one.
func (p *Mapping) alike(o *Mapping) bool {
	return p.Path == o.Path && p.Static == o.Static && executable(p) == executable(o)
}

// Cut is the part of a mapping from start to end, in it.
func (p *Mapping) Cut(start, end uint64) Mapping {
	all := p.cut(max(start, p.Start), min(end, p.End))
	if len(all) == 0 {
		return Mapping{}
	}
	return all[0]
}

// cut is the part of a mapping from start to end; none where there is nothing of it.
func (p *Mapping) cut(start, end uint64) []Mapping {
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

// beside is a mapping as the pieces that are there already, by address, and new ones between them.
func (p *Mapping) beside(there []Mapping) []Mapping {
	var all []Mapping
	at := p.Start
	for _, old := range there {
		all = append(append(all, p.cut(at, old.Start)...), old)
		at = max(at, old.End)
	}
	return append(all, p.cut(at, p.End)...)
}
