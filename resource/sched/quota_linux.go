package sched

import (
	"io/fs"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/resource"
)

// quotas follows the CPU quotas of the control groups around a process. The zero value with a root has seen none.
type quotas struct {
	root   fs.FS
	groups []machine.Group            // that the process was in: when it exits, the kernel moves it to the root
	before map[string]machine.CPUStat // by folder
	cpus   int                        // that the process may run on
}

// since returns what the quotas did to a process since the call before; nil where none of its groups is seen.
func (q *quotas) since(pid int) *resource.QuotaLine {
	for _, g := range groups(q.root, pid, "cpu") {
		if !slices.Contains(q.groups, g) {
			q.groups = append(q.groups, g)
		}
	}
	if len(q.groups) == 0 {
		return nil
	}
	line := &resource.QuotaLine{}
	now := map[string]machine.CPUStat{}
	for _, g := range q.groups {
		stat, ok := g.CPUStat(q.root)
		if !ok {
			continue
		}
		now[g.Dir] = stat
		before, known := q.before[g.Dir]
		quota := g.Quota(q.root)
		if !known || math.IsInf(quota, 1) {
			continue
		}
		if ns := stat.ThrottledNS - min(before.ThrottledNS, stat.ThrottledNS); line.Group == "" ||
			ns > line.ThrottledNS {
			*line = resource.QuotaLine{Group: "/" + g.Dir, QuotaCPUs: quota, ThrottledNS: ns,
				Periods:   stat.Periods - min(before.Periods, stat.Periods),
				Throttled: stat.Throttled - min(before.Throttled, stat.Throttled)}
		}
	}
	q.before = now
	var may unix.CPUSet
	if unix.SchedGetaffinity(pid, &may) == nil { // it has not ended
		q.cpus = may.Count()
	}
	line.CPUs = q.cpus
	return line
}
