package filemap

import (
	"sort"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// mapping is what a process has mapped. Its path has no remark that the file was deleted.
type mapping struct{ memtrace.Mapping }

// parseMaps reads /proc/PID/maps. Lines that are none of it are left out.
func parseMaps(text string) []mapping {
	var all []mapping
	for line := range strings.Lines(text) {
		if m, ok := memtrace.ParseMapping(strings.TrimSuffix(line, "\n")); ok {
			m.Path = strings.TrimSuffix(m.Path, " (deleted)")
			all = append(all, mapping{m})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Start < all[j].Start })
	return all
}

func (m *mapping) key() fileKey { return fileKey{m.Dev, m.Inode} }

// at is the place in the file that an address stands for.
func (m *mapping) at(address uint64) uint64 { return m.Offset + (address - m.Start) }

// copies reports whether what is written to it is this process's alone, and then no longer the file's.
func (m *mapping) copies() bool {
	return strings.Contains(m.Perms, "w") && strings.HasSuffix(m.Perms, "p")
}

// named reports whether the mapping belongs to a file.
func (m *mapping) named() bool {
	return m.Inode != 0 && strings.HasPrefix(m.Path, "/") && !m.shared()
}

func (m *mapping) shared() bool {
	for _, prefix := range []string{"/memfd:", "/SYSV", "/dev/shm/", "/dev/zero"} {
		if strings.HasPrefix(m.Path, prefix) {
			return true
		}
	}
	return false
}

// kind says what memory it is, of a fault that no file's page was looked up for.
func (m *mapping) kind() string {
	switch {
	case m.Path == "[heap]":
		return memoryHeap
	case m.Path == "[stack]":
		return memoryStack
	case m.shared():
		return memoryShared
	case m.named():
		return memoryPrivate
	}
	return memoryAnonymous
}

// find returns the mapping that an address lies in.
func (p *process) find(address uint64) *mapping {
	i := sort.Search(len(p.maps), func(i int) bool { return p.maps[i].End > address })
	if i < len(p.maps) && p.maps[i].Start <= address {
		return &p.maps[i]
	}
	return nil
}
