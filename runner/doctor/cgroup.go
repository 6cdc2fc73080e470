package doctor

import (
	"io/fs"
	"slices"
	"strings"
)

// cgroups says which version of control groups accounts for this process's memory and processor time.
func cgroups(root fs.FS) []Fact {
	text, err := word(root, "proc/self/cgroup")
	var facts []Fact
	for _, controller := range []string{"memory", "cpu"} {
		f := Fact{Topic: "cgroup", Name: controller, Status: Unknown}
		if err != nil {
			f.Value = err.Error()
		} else if f.Value = hierarchy(text, controller); f.Value != "" {
			f.Status, f.Value = OK, "v1 "+f.Value
		} else if f.Value = "no hierarchy seen to control it"; unifies(root, controller) {
			if group := hierarchy(text, ""); group != "" {
				f.Status, f.Value = OK, "v2 "+group
			}
		}
		facts = append(facts, f)
	}
	return facts
}

// unifies tells whether the hierarchy of version 2 has the controller; its root lists those that it has.
func unifies(root fs.FS, controller string) bool {
	for _, name := range []string{"sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/unified/cgroup.controllers"} {
		if text, err := word(root, name); err == nil && slices.Contains(strings.Fields(text), controller) {
			return true
		}
	}
	return false
}

// hierarchy finds the group of a controller in /proc/self/cgroup; version 2 has one line for all, which names none.
func hierarchy(text, controller string) string {
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && slices.Contains(strings.Split(part[1], ","), controller) {
			return part[2]
		}
	}
	return ""
}
