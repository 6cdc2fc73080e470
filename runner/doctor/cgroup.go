package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/present"
)

// membership is which control group accounts for a resource of this process, by its controller, such as memory.
func membership(root fs.FS, controller string) (m machine.Membership, err error) {
	memberships, err := machine.Memberships(root, "self", controller)
	if err != nil {
		return m, err
	}
	slices.SortStableFunc(memberships, func(a, b machine.Membership) int { return a.Version - b.Version })
	for _, m := range memberships {
		list, err := word(root, m.Mount+"/cgroup.controllers")
		if m.Version == 1 || err == nil && slices.Contains(strings.Fields(list), controller) {
			return m, nil
		}
	}
	return m, errors.New("no hierarchy is seen to control it")
}

// cgroups says which groups account for this process's memory and processor time, and what they forbid.
func cgroups(root fs.FS) []Fact {
	var facts []Fact
	for _, controller := range []string{"memory", "cpu"} {
		f := Fact{Topic: "cgroup", Name: controller}
		m, err := membership(root, controller)
		if err != nil {
			facts = append(facts, f.unknown(err))
			continue
		}
		facts = append(facts, f.with(OK, fmt.Sprintf("v%d %s", m.Version, m.Name)))
		groups := m.Groups(root)
		if len(groups) == 0 {
			facts = append(facts, Fact{Topic: "cgroup",
				Name: controller + " limit"}.unknown(fmt.Errorf("/%s is not to be seen", m.Mount)))
		} else if controller == "memory" {
			facts = append(facts, memoryLimit(root, groups))
		} else {
			facts = append(facts, quota(root, groups), throttling(root, m))
		}
	}
	return facts
}

// memoryBound is the least memory that groups may have and what of it is left; ok is false where nothing bounds it.
func memoryBound(root fs.FS, groups []machine.Group) (limit, left uint64, ok bool) {
	limit, left = math.MaxUint64, math.MaxUint64
	for _, g := range groups {
		most, bound := g.MemoryLimit(root)
		if !bound {
			continue
		}
		ok, limit = true, min(limit, most)
		if used, err := g.MemoryUsed(root); err == nil {
			left = min(left, most-min(used, most))
		}
	}
	return limit, left, ok
}

func memoryLimit(root fs.FS, groups []machine.Group) Fact {
	f := Fact{Topic: "cgroup", Name: "memory limit"}
	limit, left, ok := memoryBound(root, groups)
	if !ok {
		return f.with(OK, "none")
	}
	text := present.Bytes(limit)
	if left <= limit {
		text += ", " + present.Bytes(left) + " of it not used (file caches count as used)"
	}
	return f.with(Limited, text).lacking("a model and its recording that need more are killed",
		"raise the group's limit of memory")
}

// quota is how many processors' time the groups may take.
func quota(root fs.FS, groups []machine.Group) Fact {
	f := Fact{Topic: "cgroup", Name: "cpu limit"}
	least := math.Inf(1)
	for _, g := range groups {
		least = min(least, g.Quota(root))
	}
	if math.IsInf(least, 1) {
		return f.with(OK, "none")
	}
	cpus, err := allowed(root)
	if err == nil && least >= float64(cpus) {
		return f.with(OK, fmt.Sprintf("%.4g processors' time, for %d processors", least, cpus))
	}
	return f.with(Limited, fmt.Sprintf("%.4g processors' time", least)).
		lacking("more threads than that are all stopped for a part of every period",
			"give llama.cpp fewer threads (-t), or raise the group's quota")
}

// throttled is how often the quota has stopped the threads of the groups so far, and for how many nanoseconds; seen
// is false where no group reports it.
func throttled(root fs.FS, m machine.Membership) (times, stopped uint64, seen bool) {
	for _, g := range m.Groups(root) {
		if stat, ok := g.CPUStat(root); ok {
			seen, times, stopped = true, max(times, stat.Throttled), max(stopped, stat.ThrottledNS)
		}
	}
	return times, stopped, seen
}

// throttling reports whether the quota has stopped the groups' threads so far.
func throttling(root fs.FS, m machine.Membership) Fact {
	f := Fact{Topic: "cgroup", Name: "throttling"}
	times, stopped, seen := throttled(root, m)
	switch {
	case !seen && strings.Trim(m.Name, "/") == "":
		return f.with(OK, "never, in the root group")
	case !seen:
		return f.with(Unknown, "no cpu.stat reports it")
	case times == 0:
		return f.with(OK, "never so far")
	}
	return f.with(Limited, fmt.Sprintf("%d times so far, %s in all", times, present.Nanoseconds(int64(stopped)))).
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
