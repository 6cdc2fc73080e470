package filemap

import (
	"sort"
	"strconv"
	"strings"
)

// mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end, offset uint64
	key                fileKey
	path               string // as the kernel writes it; "" for memory without a name
	copies             bool   // what is written to it is this process's alone, and then no longer the file's
}

// parseMaps reads /proc/PID/maps. Lines that are none of it are left out.
func parseMaps(text string) []mapping {
	var mappings []mapping
	for line := range strings.Lines(text) {
		if m, ok := parseMapping(strings.TrimSuffix(line, "\n")); ok {
			mappings = append(mappings, m)
		}
	}
	sort.Slice(mappings, func(i, j int) bool { return mappings[i].start < mappings[j].start })
	return mappings
}

// parseMapping reads "start-end perms offset major:minor inode   path".
func parseMapping(line string) (m mapping, ok bool) {
	var field [5]string
	rest := line
	for i := range field {
		if field[i], rest, ok = strings.Cut(rest, " "); !ok && i < len(field)-1 {
			return m, false
		}
	}
	m.path = strings.TrimSuffix(strings.TrimLeft(rest, " "), " (deleted)")
	from, to, cut := strings.Cut(field[0], "-")
	major, minor, cut2 := strings.Cut(field[3], ":")
	var numbers [5]uint64
	for i, s := range []string{from, to, field[2], major, minor} {
		n, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			return m, false
		}
		numbers[i] = n
	}
	inode, err := strconv.ParseUint(field[4], 10, 64)
	m.start, m.end, m.offset = numbers[0], numbers[1], numbers[2]
	m.copies = strings.Contains(field[1], "w") && strings.HasSuffix(field[1], "p")
	m.key = fileKey{uint32(numbers[3])<<20 | uint32(numbers[4]), inode}
	return m, cut && cut2 && err == nil && m.end > m.start
}

// named reports whether the mapping belongs to a file.
func (m *mapping) named() bool {
	return m.key.Ino != 0 && strings.HasPrefix(m.path, "/") && !m.shared()
}

func (m *mapping) shared() bool {
	for _, prefix := range []string{"/memfd:", "/SYSV", "/dev/shm/", "/dev/zero"} {
		if strings.HasPrefix(m.path, prefix) {
			return true
		}
	}
	return false
}

// kind says what memory it is, of a fault that no file's page was looked up for.
func (m *mapping) kind() string {
	switch {
	case m.path == "[heap]":
		return memoryHeap
	case m.path == "[stack]":
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
	i := sort.Search(len(p.maps), func(i int) bool { return p.maps[i].end > address })
	if i < len(p.maps) && p.maps[i].start <= address {
		return &p.maps[i]
	}
	return nil
}
