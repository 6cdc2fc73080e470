package sched

import (
	"errors"
	"io/fs"
	"path"
	"strconv"

	"github.com/llamatap/llamatap/internal/machine"
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
		limit, bound := d.MemoryLimit(root)
		used, failed := d.MemoryUsed(root)
		if !bound || limit == 0 || failed != nil {
			continue
		}
		if m.Limit == nil || float64(used)/float64(limit) > float64(*m.Used)/float64(*m.Limit) {
			m.Used, m.Limit, err = &used, &limit, nil
		}
	}
	return m, err
}

// groups lists the control groups of a controller, such as memory, that a process is in, of both versions; none where
// they cannot be read.
func groups(root fs.FS, pid int, controller string) (all []machine.Group) {
	in, _ := machine.Memberships(root, strconv.Itoa(pid), controller)
	for _, m := range in {
		all = append(all, m.Groups(root)...)
	}
	return all
}

// psiFiles lists the PSI files of the groups of version 2; version 1 has none.
func psiFiles(groups []machine.Group) []string {
	var names []string
	for _, g := range groups {
		if g.Version == 2 {
			names = append(names, path.Join(g.Dir, "memory.pressure"))
		}
	}
	return names
}
