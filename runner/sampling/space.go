package sampling

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Space is what a process has mapped, by what the kernel tells of each mapping and by looking. Told may be called by several goroutines, the rest is for
// one.
type Space struct {
	regions *memtrace.RegionMap
	maps    *memtrace.Mappings
	mu      sync.Mutex
	told    []mapped
	dropped uint64
}

// mapped is a record of one process.
type mapped struct {
	pid  int32
	ns   int64
	anew bool // the process has become another program
	memtrace.Mapping
}

// maxTold is how many records wait for Apply at most. What they would tell is seen by the next look.
const maxTold = 1 << 16

// NewSpace makes a space of nothing.
func NewSpace() *Space {
	m := memtrace.NewRegionMap()
	return &Space{regions: m, maps: memtrace.NewMappings(m)}
}

// Map is what is mapped, as regions.
func (s *Space) Map() *memtrace.RegionMap { return s.regions }

// commExec is the bit of a record's Misc which says that a process has got its name from execve(2).
const commExec = 1 << 13

// Told takes a record that is no sample. Those that are of no mapping are passed over.
func (s *Space) Told(r *perfevent.Record) {
	m := mapped{pid: int32(r.PID), ns: int64(r.Sample.Time)}
	switch {
	case r.Type == perfevent.RecordComm && r.Misc&commExec != 0:
		m.anew = true
	case r.Type == perfevent.RecordMmap2 || r.Type == perfevent.RecordMmap:
		m.Mapping = memtrace.Mapping{Start: r.Addr, End: r.Addr + r.Length, Offset: r.Offset, Path: pathOf(string(r.Name)), Perms: perms(r.Prot)}
		if m.Start >= m.End {
			return
		}
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) == maxTold {
		s.dropped++
		return
	}
	s.told = append(s.told, m)
}

// pathOf makes of a mapping's name in a record what /proc/PID/maps has.
func pathOf(name string) string {
	if name == "//anon" {
		return ""
	}
	return name
}

// perms makes of PROT_READ and so on what /proc/PID/maps has.
func perms(prot uint32) string {
	b := []byte("---p")
	for i, c := range "rwx" {
		if prot&(1<<i) != 0 {
			b[i] = byte(c)
		}
	}
	return string(b)
}

// Apply takes what was told of a process into the map.
func (s *Space) Apply(pid int32) {
	s.mu.Lock()
	told := s.told
	s.told = nil
	s.mu.Unlock()
	slices.SortStableFunc(told, func(a, b mapped) int { return cmp.Compare(a.ns, b.ns) })
	for _, m := range told {
		switch {
		case m.pid != pid:
		case m.anew:
			s.maps.Clear(m.ns)
		default:
			s.maps.Map(m.ns, m.Mapping)
		}
	}
}

// Look looks at what a process has mapped, at a time. Of one that has ended nothing is known, and what was known stays.
func (s *Space) Look(pid int, ns int64) error {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	defer file.Close()
	all, err := memtrace.ParseMaps(file)
	if err != nil || len(all) == 0 {
		return err
	}
	s.Apply(int32(pid))
	s.maps.Look(ns, all)
	return nil
}

// File is the file that is mapped at an address now, and where in it the address lies; "": none.
func (s *Space) File(addr uint64) (path string, offset uint64) {
	live := s.maps.Live()
	i, _ := slices.BinarySearchFunc(live, addr, func(p memtrace.Mapping, addr uint64) int {
		if p.End <= addr {
			return -1
		}
		return 1
	})
	if i == len(live) || live[i].Start > addr || live[i].Path == "" || live[i].Path[0] != '/' {
		return "", 0
	}
	return live[i].Path, live[i].Offset + addr - live[i].Start
}

// Mapped is what is mapped now, by address. It may not be changed.
func (s *Space) Mapped() []memtrace.Mapping { return s.maps.Live() }
