package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
)

// A group is the control group that accounts for a resource of this process.
type group struct {
	version int
	mount   string // where its hierarchy is mounted, below the root
	name    string // within the hierarchy, from /
}

// groupOf finds the group of a controller, such as memory.
func groupOf(root fs.FS, controller string) (group, error) {
	text, err := word(root, "proc/self/cgroup")
	if err != nil {
		return group{}, err
	}
	if name := hierarchy(text, controller); name != "" {
		return group{1, "sys/fs/cgroup/" + controller, name}, nil
	}
	for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
		list, err := word(root, mount+"/cgroup.controllers")
		if name := hierarchy(text, ""); err == nil && name != "" && slices.Contains(strings.Fields(list), controller) {
			return group{2, mount, name}, nil
		}
	}
	return group{}, errors.New("no hierarchy is seen to control it")
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

// above lists the folders of a group and of those around it, as far as this process sees them: a limit of any of
// them holds. In a container the name may be one of outside, and the mount is the container's own group.
func (g group) above(root fs.FS) []string {
	var dirs []string
	for name := path.Clean("/" + g.name); ; name = path.Dir(name) {
		dir := path.Join(g.mount, name)
		if info, err := fs.Stat(root, dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
		if name == "/" {
			return dirs
		}
	}
}

// cgroups says which groups account for this process's memory and processor time, and what they forbid.
func cgroups(root fs.FS) []Fact {
	var facts []Fact
	for _, controller := range []string{"memory", "cpu"} {
		f := Fact{Topic: "cgroup", Name: controller}
		g, err := groupOf(root, controller)
		if err != nil {
			facts = append(facts, f.unknown(err))
			continue
		}
		facts = append(facts, f.is(OK, fmt.Sprintf("v%d %s", g.version, g.name)))
		if len(g.above(root)) == 0 {
			facts = append(facts, Fact{Topic: "cgroup",
				Name: controller + " limit"}.unknown(fmt.Errorf("/%s is not to be seen", g.mount)))
		} else if controller == "memory" {
			facts = append(facts, memoryLimit(root, g))
		} else {
			facts = append(facts, quota(root, g), throttling(root, g))
		}
	}
	return facts
}

// memoryBound is the least memory that the groups of this process may have and what of it is left; ok is false
// where nothing bounds it.
func memoryBound(root fs.FS, g group) (limit, left uint64, ok bool) {
	names := map[int][2]string{1: {"memory.limit_in_bytes", "memory.usage_in_bytes"},
		2: {"memory.max", "memory.current"}}[g.version]
	limit, left = math.MaxUint64, math.MaxUint64
	for _, dir := range g.above(root) {
		most, err := number(root, dir+"/"+names[0])
		if err != nil || most >= 1<<62 { // version 1 writes a number near 2⁶³ for none
			continue
		}
		ok, limit = true, min(limit, most)
		if used, err := number(root, dir+"/"+names[1]); err == nil {
			left = min(left, most-min(used, most))
		}
	}
	return limit, left, ok
}

func memoryLimit(root fs.FS, g group) Fact {
	f := Fact{Topic: "cgroup", Name: "memory limit"}
	limit, left, ok := memoryBound(root, g)
	if !ok {
		return f.is(OK, "none")
	}
	text := present.Bytes(limit)
	if left <= limit {
		text += ", " + present.Bytes(left) + " of it not used (file caches count as used)"
	}
	return f.is(Limited, text).lacking("a model and its recording that need more are killed",
		"raise the group's limit of memory")
}

// quota is how many processors' time the groups may take.
func quota(root fs.FS, g group) Fact {
	f := Fact{Topic: "cgroup", Name: "cpu limit"}
	least := math.Inf(1)
	for _, dir := range g.above(root) {
		time, period := "max", ""
		if g.version == 2 {
			text, _ := word(root, dir+"/cpu.max")
			time, period, _ = strings.Cut(text, " ")
		} else {
			time, _ = word(root, dir+"/cpu.cfs_quota_us")
			period, _ = word(root, dir+"/cpu.cfs_period_us")
		}
		t, err := strconv.ParseFloat(time, 64)
		p, wrong := strconv.ParseFloat(period, 64)
		if err == nil && wrong == nil && t > 0 && p > 0 { // max and -1 are none
			least = min(least, t/p)
		}
	}
	if math.IsInf(least, 1) {
		return f.is(OK, "none")
	}
	cpus, err := allowed(root)
	if err == nil && least >= float64(cpus) {
		return f.is(OK, fmt.Sprintf("%.4g processors' time, for %d processors", least, cpus))
	}
	return f.is(Limited, fmt.Sprintf("%.4g processors' time", least)).
		lacking("more threads than that are all stopped for a part of every period",
			"give llama.cpp fewer threads (-t), or raise the group's quota")
}

// throttled is how often the quota has stopped the threads of the groups so far, and for how many nanoseconds; seen
// is false where no group reports it.
func throttled(root fs.FS, g group) (times, stopped uint64, seen bool) {
	for _, dir := range g.above(root) {
		text, err := word(root, dir+"/cpu.stat")
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.ParseUint(value, 10, 64)
			switch {
			case err != nil:
			case key == "nr_throttled":
				seen, times = true, max(times, n)
			case key == "throttled_usec":
				stopped = max(stopped, n*1000)
			case key == "throttled_time":
				stopped = max(stopped, n)
			}
		}
	}
	return times, stopped, seen
}

// throttling reports whether the quota has stopped the groups' threads so far.
func throttling(root fs.FS, g group) Fact {
	f := Fact{Topic: "cgroup", Name: "throttling"}
	times, stopped, seen := throttled(root, g)
	switch {
	case !seen && strings.Trim(g.name, "/") == "":
		return f.is(OK, "never, in the root group")
	case !seen:
		return f.is(Unknown, "no cpu.stat reports it")
	case times == 0:
		return f.is(OK, "never so far")
	}
	return f.is(Limited, fmt.Sprintf("%d times so far, %s in all", times, present.Nanoseconds(int64(stopped)))).
		lacking("times of operations contain the stops",
			"give llama.cpp fewer threads (-t), or raise the group's quota")
}

// number reads a file that holds one.
func number(root fs.FS, name string) (uint64, error) {
	text, err := word(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}
