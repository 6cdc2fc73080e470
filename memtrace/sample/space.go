package sample

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// Space is what a process has mapped, as it was when everything up to a time had been applied ([Spaces.Apply]). It
// is for one goroutine.
type Space struct {
	Process
	regions *memtrace.RegionMap
	maps    *memtrace.Mappings
	objects *objects
	root    string              // what stands before paths, where the process has a root of its own
	places  map[string][]uint64 // of objects, by path, as far as they were asked for since something changed
}

// Process is a process that was followed.
type Process struct {
	PID    int32  `json:"pid"`
	Parent int32  `json:"parent_pid,omitempty"` // that it was forked by, 0: it was there already
	Name   string `json:"name,omitempty"`       // the kernel's: at most 15 bytes
	// Begin and End are when it was forked, and ended; 0: not seen. CLOCK_MONOTONIC nanoseconds.
	Begin int64 `json:"-"`
	End   int64 `json:"-"`
}

func newSpace(pid int32, objects *objects) *Space {
	m := memtrace.NewRegionMap()
	return &Space{Process: Process{PID: pid}, regions: m, maps: memtrace.NewMappings(m), objects: objects,
		root: rootOf(pid)}
}

// rootOf is what leads to the files of a process that lives in a mount namespace of its own, such as a container;
// "" where it is ours.
func rootOf(pid int32) string {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if ours, ourErr := os.Readlink("/proc/self/ns/mnt"); err != nil || ourErr != nil || ours == theirs {
		return ""
	}
	return fmt.Sprintf("/proc/%d/root", pid)
}

// Map is what is mapped, as regions.
func (s *Space) Map() *memtrace.RegionMap { return s.regions }

// Mapped is what is mapped now, by address. It may not be changed.
func (s *Space) Mapped() []memtrace.Mapping { return s.maps.Live() }

// fork makes the space of a process that this one has forked.
func (s *Space) fork(pid int32, ns int64) *Space {
	child := newSpace(pid, s.objects)
	child.Process = Process{PID: pid, Parent: s.PID, Name: s.Name, Begin: ns}
	child.maps.Look(ns, s.Mapped())
	return child
}

// exec makes it the space of another program.
func (s *Space) exec(ns int64, name string) {
	s.Name, s.root = name, rootOf(s.PID)
	s.maps.Clear(ns)
	s.places = nil
}

// mapped records that something was mapped.
func (s *Space) mapped(ns int64, m memtrace.Mapping) {
	if m.Offset == 0 && isPath(m.Path) {
		s.objects.renew(s.root, m.Path)
	}
	for _, part := range s.marked(m, s.Mapped(), s.Mapped(), s.places) {
		s.maps.Map(ns, part)
	}
	s.places = nil
}

// setMappings replaces all mappings.
func (s *Space) setMappings(ns int64, mappings []memtrace.Mapping) {
	marked := make([]memtrace.Mapping, 0, len(mappings)+16)
	places := map[string][]uint64{}
	for _, m := range mappings {
		marked = append(marked, s.marked(m, marked, mappings, places)...)
	}
	s.maps.Look(ns, marked)
	s.places = nil
}

func isPath(path string) bool { return path != "" && path[0] == '/' }

// object is the ELF file of a mapping; nil: it is of none.
func (s *Space) object(m *memtrace.Mapping) *object {
	if !isPath(m.Path) {
		return nil
	}
	if o := s.objects.open(s.root, m.Path); len(o.segments) > 0 {
		return o
	}
	return nil
}

// marked is a mapping with what is static data of objects marked, in as many parts as it takes. Variables that are
// zeros at first (.bss) lie in memory that has no name, after the object's others. before is mapped below it or in
// its place, by address; of all is found out where objects lie.
func (s *Space) marked(m memtrace.Mapping, before, mappings []memtrace.Mapping,
	places map[string][]uint64) []memtrace.Mapping {
	if isPath(m.Path) {
		m.Static = !m.Executable() && s.object(&m) != nil
		return []memtrace.Mapping{m}
	}
	if m.Path != "" && m.Path != "[heap]" {
		return []memtrace.Mapping{m}
	}
	below := after(before, m.Start)
	for k := below; k > max(0, below-maxBelow); k-- {
		o := s.object(&before[k-1])
		if o == nil {
			continue
		}
		for _, bias := range s.placesOf(o, mappings, places) {
			if parts := o.zeros(m, bias); parts != nil {
				return parts
			}
		}
	}
	return []memtrace.Mapping{m}
}

// maxBelow is how many mappings below a nameless one may belong to its object.
const maxBelow = 3

// after is the number of the first mapping that begins after an address.
func after(mappings []memtrace.Mapping, addr uint64) int {
	i, _ := slices.BinarySearchFunc(mappings, addr, func(p memtrace.Mapping, addr uint64) int {
		if p.Start <= addr {
			return -1
		}
		return 1
	})
	return i
}

// pageUp is the next address at which a page begins.
func pageUp(addr uint64) uint64 {
	page := uint64(os.Getpagesize())
	return (addr + page - 1) &^ (page - 1)
}

// zeros cuts a nameless mapping into the object's zeros and what lies around them. Nil: there are none in it.
func (o *object) zeros(m memtrace.Mapping, bias uint64) []memtrace.Mapping {
	for _, p := range o.segments {
		first, end := pageUp(bias+p.Vaddr+p.Filesz), pageUp(bias+p.Vaddr+p.Memsz)
		if first, end = max(first, m.Start), min(end, m.End); p.Flags&elf.PF_X != 0 || first >= end {
			continue
		}
		own := m.Cut(first, end)
		own[0].Path, own[0].Static, own[0].Offset = o.path, true, first-bias-p.Vaddr+p.Off
		return slices.Concat(m.Cut(m.Start, first), own, m.Cut(end, m.End))
	}
	return nil
}

// placesOf is by how much the addresses of an object are higher in memory than in its file, once for each place where
// it lies. What several of its mappings agree on is believed: one alone may be of somebody who reads the file.
func (s *Space) placesOf(o *object, mappings []memtrace.Mapping, known map[string][]uint64) []uint64 {
	if places, ok := known[o.path]; ok {
		return places
	}
	page := uint64(os.Getpagesize())
	votes := map[uint64]int{}
	for i := range mappings {
		m := &mappings[i]
		if m.Path != o.path {
			continue
		}
		voted := map[uint64]bool{}
		for _, p := range o.segments {
			bias := m.Start - m.Offset + p.Off - p.Vaddr
			if fits := m.Offset >= p.Off&^(page-1) && m.Offset < p.Off+p.Filesz; fits &&
				m.Executable() == (p.Flags&elf.PF_X != 0) && !voted[bias] {
				votes[bias]++
				voted[bias] = true
			}
		}
	}
	most := 0
	for _, n := range votes {
		most = max(most, n)
	}
	var places []uint64
	for bias, n := range votes {
		if 2*n >= most && (n > 1 || len(o.segments) == 1) {
			places = append(places, bias)
		}
	}
	slices.SortFunc(places, func(a, b uint64) int { return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a, b)) })
	if known != nil {
		known[o.path] = places
	}
	return places
}

// live is the mapping that an address lies in now; nil: none.
func (s *Space) live(addr uint64) *memtrace.Mapping {
	mappings := s.Mapped()
	if i := after(mappings, addr); i > 0 && mappings[i-1].End > addr {
		return &mappings[i-1]
	}
	return nil
}

// Function is the name of the function that an instruction belongs to, "" where none is known.
func (s *Space) Function(ip uint64) string {
	m := s.live(ip)
	if m == nil {
		return ""
	}
	if o := s.object(m); o != nil {
		return s.objects.named(o).function(m.Offset + ip - m.Start)
	}
	return ""
}

// Variable is the name of the variable or constant of a program or library that holds size bytes from an address
// on, "" where none is known.
func (s *Space) Variable(addr, size uint64) string {
	m := s.live(addr)
	if m == nil {
		return ""
	}
	o := s.object(m)
	if o == nil {
		return ""
	}
	if s.places == nil {
		s.places = map[string][]uint64{}
	}
	for _, bias := range s.placesOf(o, s.Mapped(), s.places) {
		if o.holds(addr - bias) {
			return s.objects.named(o).variable(addr-bias, size)
		}
	}
	return ""
}
