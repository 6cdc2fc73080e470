package sched

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// MemoryPressure reports how short of memory a process is. A figure that the kernel does not report is nil.
type MemoryPressure struct {
	// SomeAvg10 is the share of the last ten seconds, in percent, in which some task waited for memory (PSI,
	// Documentation/accounting/psi.rst).
	SomeAvg10 *float64
	// Used and Limit are bytes of the tightest control group above the process that has a limit. File caches count
	// as used.
	Used, Limit *uint64
}

// The levels of [MemoryPressure.Level].
const (
	Low    = "low"
	Medium = "medium"
	High   = "high"
)

// Level classifies the pressure: High from 10 % of the time or 95 % of the limit, Medium from 1 % or 80 %; "" if
// nothing is known.
func (m MemoryPressure) Level() string {
	level := ""
	raise := func(v, medium, high float64) {
		switch {
		case v >= high:
			level = High
		case v >= medium && level != High:
			level = Medium
		case level == "":
			level = Low
		}
	}
	if m.SomeAvg10 != nil {
		raise(*m.SomeAvg10, 1, 10)
	}
	if m.Used != nil && m.Limit != nil && *m.Limit > 0 {
		raise(100*float64(*m.Used)/float64(*m.Limit), 80, 95)
	}
	return level
}

// ReadMemoryPressure reads the memory pressure on a process from /proc and /sys below root. It fails only if no
// figure can be read.
func ReadMemoryPressure(root fs.FS, pid int) (MemoryPressure, error) {
	var m MemoryPressure
	dirs := groups(root, pid, "memory")
	err := errors.New("memory pressure is unavailable: the kernel has neither PSI nor a memory control group")
	for _, name := range append(psiFiles(dirs), "proc/pressure/memory") {
		text, failed := fs.ReadFile(root, name)
		if failed != nil {
			continue
		}
		stall, failed := parseStall(string(text))
		if some, ok := stall["some"]; failed == nil && ok {
			m.SomeAvg10, err = &some.Avg10, nil
			break
		}
	}
	for _, d := range dirs {
		used, limit, ok := d.bound(root)
		if ok && (m.Limit == nil || float64(used)/float64(limit) > float64(*m.Used)/float64(*m.Limit)) {
			m.Used, m.Limit, err = &used, &limit, nil
		}
	}
	return m, err
}

// group is the folder of a control group.
type group struct {
	version int
	dir     string
}

// bound returns the usage and the limit of a group.
func (g group) bound(root fs.FS) (used, limit uint64, ok bool) {
	names := [2]string{"memory.current", "memory.max"}
	if g.version == 1 {
		names = [2]string{"memory.usage_in_bytes", "memory.limit_in_bytes"}
	}
	limit, err := number(root, path.Join(g.dir, names[1]))
	if err != nil || limit == 0 || limit >= 1<<62 { // version 1 writes a number near 2⁶³ for none, version 2 "max"
		return 0, 0, false
	}
	used, err = number(root, path.Join(g.dir, names[0]))
	return used, limit, err == nil
}

// groups lists the folders of the process's control group of a controller, such as memory, and of those around it,
// innermost first.
func groups(root fs.FS, pid int, controller string) []group {
	text, err := fs.ReadFile(root, fmt.Sprintf("proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	var all []group
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		switch {
		case part[1] == "":
			all = append(all, above(root, 2, unified(root), part[2])...)
		case slices.Contains(strings.Split(part[1], ","), controller):
			all = append(all, above(root, 1, "sys/fs/cgroup/"+controller, part[2])...)
		}
	}
	return all
}

func above(root fs.FS, version int, mount, name string) (all []group) {
	for name = path.Clean("/" + name); ; name = path.Dir(name) {
		dir := path.Join(mount, name)
		if info, err := fs.Stat(root, dir); err == nil && info.IsDir() {
			all = append(all, group{version, dir})
		}
		if name == "/" {
			return all
		}
	}
}

// psiFiles lists the PSI files of the groups of version 2; version 1 has none.
func psiFiles(groups []group) []string {
	var names []string
	for _, g := range groups {
		if g.version == 2 {
			names = append(names, path.Join(g.dir, "memory.pressure"))
		}
	}
	return names
}

func number(root fs.FS, name string) (uint64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}
