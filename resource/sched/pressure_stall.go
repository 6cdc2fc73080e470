package sched

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/resource"
)

// resources are those whose pressure the kernel reports, as named in lines of system_metrics.jsonl.
var resources = []string{"cpu", "io", "memory"}

// groupOf returns the folder, below root, of the control group of version 2 of a process; "" if the process is in the
// root group.
func groupOf(root fs.FS, pid int) string {
	in, _ := machine.Memberships(root, strconv.Itoa(pid), "")
	for _, m := range in {
		if m.Name != "/" {
			return path.Join(m.Mount, m.Name)
		}
	}
	return ""
}

// groupFolder returns the folder, below root, of a control group that is named by its folder or by its path below the
// hierarchy of version 2.
func groupFolder(root fs.FS, group string) string {
	dir := strings.TrimPrefix(path.Clean(group), "/")
	if info, err := fs.Stat(root, dir); path.IsAbs(group) && err == nil && info.IsDir() {
		return dir
	}
	return path.Join(machine.UnifiedMount(root), dir)
}

// machinePressure is the folder of the pressure on the whole machine.
const machinePressure = "proc/pressure"

// stalls reads the pressure that the files RESOURCE+suffix of a folder report: of machinePressure, or, with the suffix
// .pressure, of a control group of version 2. A resource that the kernel does not report is absent: the map is empty
// without PSI, and for the root group.
func stalls(root fs.FS, dir, suffix string) (map[string]resource.HostStall, error) {
	hostStalls := map[string]resource.HostStall{}
	for _, r := range resources {
		name := path.Join(dir, r+suffix)
		text, err := fs.ReadFile(root, name)
		if err != nil { // not there, or switched off: reading says EOPNOTSUPP
			continue
		}
		stall, err := parseStall(string(text))
		if err != nil {
			return hostStalls, fmt.Errorf("read %s: %w", name, err)
		}
		hostStalls[r] = stall
	}
	return hostStalls, nil
}

// parseStall reads a PSI file: lines of "some" and "full" with avg10, avg60, avg300 in percent and total in
// microseconds.
func parseStall(text string) (resource.HostStall, error) {
	stall := resource.HostStall{}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "" {
			continue
		}
		var f resource.StallFigures
		into := map[string]*float64{"avg10": &f.Avg10, "avg60": &f.Avg60, "avg300": &f.Avg300, "total": &f.Total}
		for word := range strings.FieldsSeq(rest) {
			key, value, _ := strings.Cut(word, "=")
			to := into[key]
			if to == nil {
				continue // a figure of a later kernel
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("figure %s in %.60q: %w", key, line, err)
			}
			*to = v
			delete(into, key)
		}
		if len(into) > 0 {
			return nil, fmt.Errorf("line %.60q lacks one of avg10, avg60, avg300, total", line)
		}
		stall[kind] = f
	}
	return stall, nil
}
