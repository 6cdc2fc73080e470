package machine

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Membership is the place of a process in one hierarchy of control groups.
type Membership struct {
	Version int    // of control groups, 1 or 2
	Mount   string // where the hierarchy is mounted, below the root
	Name    string // of the group within the hierarchy, from /
}

// Memberships returns where a process, by number or "self", is in the hierarchy of a controller of version 1, such as
// memory, and in that of version 2. It reads /proc below root.
func Memberships(root fs.FS, pid, controller string) ([]Membership, error) {
	text, err := fs.ReadFile(root, "proc/"+pid+"/cgroup")
	if err != nil {
		return nil, err
	}
	var memberships []Membership
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) != 3:
		case part[1] == "":
			memberships = append(memberships, Membership{2, UnifiedMount(root), part[2]})
		case slices.Contains(strings.Split(part[1], ","), controller):
			memberships = append(memberships, Membership{1, "sys/fs/cgroup/" + controller, part[2]})
		}
	}
	return memberships, nil
}

// UnifiedMount is the folder, below root, in which the hierarchy of version 2 is mounted.
func UnifiedMount(root fs.FS) string {
	text, _ := fs.ReadFile(root, "proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return strings.TrimPrefix(f[1], "/")
		}
	}
	return "sys/fs/cgroup"
}

// Groups lists the group and those around it, innermost first, as far as this process sees them: a limit of any of
// them holds. In a container the name may be one of outside, and the mount is the container's own group.
func (m Membership) Groups(root fs.FS) (groups []Group) {
	for name := path.Clean("/" + m.Name); ; name = path.Dir(name) {
		dir := path.Join(m.Mount, name)
		if info, err := fs.Stat(root, dir); err == nil && info.IsDir() {
			groups = append(groups, Group{m.Version, dir})
		}
		if name == "/" {
			return groups
		}
	}
}

// Group is a control group.
type Group struct {
	Version int    // of control groups, 1 or 2
	Dir     string // below the root
}

// MemoryLimit is how many bytes of memory the group may use; ok is false where it has no limit.
func (g Group) MemoryLimit(root fs.FS) (limit uint64, ok bool) {
	limit, err := g.number(root, "memory.limit_in_bytes", "memory.max")
	return limit, err == nil && limit < 1<<62 // version 1 writes a number near 2⁶³ for none, version 2 "max"
}

// MemoryUsed is how many bytes of memory the group uses, with its file caches.
func (g Group) MemoryUsed(root fs.FS) (uint64, error) {
	return g.number(root, "memory.usage_in_bytes", "memory.current")
}

func (g Group) number(root fs.FS, first, second string) (uint64, error) {
	text, err := g.read(root, map[int]string{1: first, 2: second}[g.Version])
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

func (g Group) read(root fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(root, path.Join(g.Dir, name))
	return strings.TrimSpace(string(text)), err
}

// Quota is how many processors' time the group may take; +Inf is all.
func (g Group) Quota(root fs.FS) float64 {
	text, _ := g.read(root, "cpu.max")
	time, period, _ := strings.Cut(text, " ")
	if g.Version == 1 {
		time, _ = g.read(root, "cpu.cfs_quota_us")
		period, _ = g.read(root, "cpu.cfs_period_us")
	}
	t, err := strconv.ParseFloat(time, 64)
	p, wrong := strconv.ParseFloat(period, 64)
	if err != nil || wrong != nil || t <= 0 || p <= 0 { // max and -1 are none
		return math.Inf(1)
	}
	return t / p
}

// CPUStat is how often a group's quota was applied and has stopped its threads, since the group was made.
type CPUStat struct{ Periods, Throttled, ThrottledNS uint64 }

// CPUStat reads cpu.stat; ok is false for a group that counts no periods, as the root of version 2.
func (g Group) CPUStat(root fs.FS) (s CPUStat, ok bool) {
	text, _ := g.read(root, "cpu.stat")
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case key == "nr_periods":
			s.Periods, ok = n, true
		case key == "nr_throttled":
			s.Throttled = n
		case key == "throttled_time": // version 1
			s.ThrottledNS = n
		case key == "throttled_usec": // version 2
			s.ThrottledNS = n * 1000
		}
	}
	return s, ok
}
