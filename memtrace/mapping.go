package memtrace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Mapping is addresses of a process that the kernel knows as one, as a line of /proc/PID/maps shows.
type Mapping struct {
	Start, End uint64
	Perms      string // such as r-xp
	Offset     uint64 // in the file
	Inode      uint64 // of the file, 0 = none
	Path       string // of the file, or [heap], [stack] …; "" where there is none
	// Static is true if the variables or constants of an ELF object lie here, whose path Path is, even where they
	// are in no file, such as zeros (.bss).
	Static bool
}

// ErrMaps occurs when a text is none of /proc/PID/maps.
var ErrMaps = errors.New("no line of /proc/PID/maps")

// ParseMaps reads the text of /proc/PID/maps, whose lines are in the order of addresses.
func ParseMaps(r io.Reader) ([]Mapping, error) {
	var mappings []Mapping
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		m, ok := parseMapping(lines.Text())
		if !ok || len(mappings) > 0 && m.Start < mappings[len(mappings)-1].End {
			return nil, fmt.Errorf("%w: line %d: %q", ErrMaps, n, lines.Text())
		}
		mappings = append(mappings, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read /proc/PID/maps: %w", err)
	}
	return mappings, nil
}

func parseMapping(line string) (m Mapping, ok bool) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 5 {
		return m, false
	}
	first, last, _ := strings.Cut(fields[0], "-")
	var failed [4]error
	m.Start, failed[0] = strconv.ParseUint(first, 16, 64)
	m.End, failed[1] = strconv.ParseUint(last, 16, 64)
	m.Offset, failed[2] = strconv.ParseUint(fields[2], 16, 64)
	m.Inode, failed[3] = strconv.ParseUint(fields[4], 10, 64)
	m.Perms = fields[1]
	if len(fields) == 6 {
		m.Path = strings.TrimLeft(fields[5], " ")
	}
	return m, errors.Join(failed[:]...) == nil && m.Start < m.End && len(m.Perms) == 4
}

// region is what a mapping is for, where no buffer lies in it.
func (p *Mapping) region(ns int64) Region {
	r := Region{Name: cmp.Or(p.Path, "[anonymous]"), Layer: NoLayer, Offset: p.Start, Bytes: p.End - p.Start, From: ns,
		To: Forever, Ctx: -1}
	switch {
	case strings.Contains(p.Perms, "x"):
		r.Type = Code
	case p.Static:
		r.Type = StaticData
	case strings.HasPrefix(p.Path, "[stack"):
		r.Type = Stack
	case p.Path == "" || strings.HasPrefix(p.Path, "[heap") || strings.HasPrefix(p.Path, "[anon"):
		r.Type = Runtime
	}
	return r
}

// modelFile reports whether a file holds weights, by its name.
func modelFile(path string) bool {
	path = strings.TrimSuffix(path, " (deleted)")
	return strings.HasSuffix(path, ".gguf") || strings.HasSuffix(path, ".safetensors")
}

// mapped is a live mapping with its region.
type mapped struct {
	Mapping
	id int
}

// SetMappings says what the process had mapped at a time, which it puts in order by address. What was mapped before
// and is not there any more has ended; what is new begins. A mapping that has grown or shrunk is a new one.
func (m *RegionMap) SetMappings(ns int64, now []Mapping) {
	sortMappings(now)
	live, old := m.spare[:0], m.mapped
	var ended []mapped
	for i := range now {
		p := &now[i]
		for len(old) > 0 && old[0].Start <= p.Start && old[0].Mapping != *p {
			ended, old = append(ended, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].Start == p.Start {
			live, old = append(live, old[0]), old[1:]
			continue
		}
		region := p.region(ns)
		if len(m.buffers) == 0 && region.Type == Other && modelFile(p.Path) { // a program whose buffers nobody reports
			region.Type = Weight
		}
		id := m.fresh(region).ID
		m.maps.add(p.Start, p.End, id, ns)
		live = append(live, mapped{*p, id})
	}
	for _, p := range append(ended, old...) {
		m.maps.end(p.Start, p.End, p.id, ns)
		m.regions[p.id].To = ns
	}
	m.mapped, m.spare = live, m.mapped
}
