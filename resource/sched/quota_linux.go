package sched

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
)

// quotas follows the CPU quotas of the control groups around a process. The zero value with a root has seen none.
type quotas struct {
	root   fs.FS
	groups []group            // that the process was in: when it exits, the kernel moves it to the root
	before map[string]cpuStat // by folder
	cpus   int                // that the process may run on
}

// cpuStat is what cpu.stat of a group has counted.
type cpuStat struct{ periods, throttled, ns uint64 }

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
	now := map[string]cpuStat{}
	for _, g := range q.groups {
		stat, ok := g.cpuStat(q.root)
		if !ok {
			continue
		}
		now[g.dir] = stat
		before, known := q.before[g.dir]
		quota := g.quota(q.root)
		if !known || quota == 0 {
			continue
		}
		if ns := stat.ns - min(before.ns, stat.ns); line.Group == "" || ns > line.ThrottledNS {
			*line = resource.QuotaLine{Group: "/" + g.dir, QuotaCPUs: quota, ThrottledNS: ns,
				Periods:   stat.periods - min(before.periods, stat.periods),
				Throttled: stat.throttled - min(before.throttled, stat.throttled)}
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

// cpuStat reads cpu.stat; ok is false for a group that counts no periods, as the root of version 2.
func (g group) cpuStat(root fs.FS) (s cpuStat, ok bool) {
	text, err := fs.ReadFile(root, path.Join(g.dir, "cpu.stat"))
	if err != nil {
		return s, false
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case key == "nr_periods":
			s.periods, ok = n, true
		case key == "nr_throttled":
			s.throttled = n
		case key == "throttled_time": // version 1
			s.ns = n
		case key == "throttled_usec": // version 2
			s.ns = n * 1000
		}
	}
	return s, ok
}

// quota is how many CPUs' time the group may take; 0 is all.
func (g group) quota(root fs.FS) float64 {
	read := func(name string) string {
		text, _ := fs.ReadFile(root, path.Join(g.dir, name))
		return strings.TrimSpace(string(text))
	}
	time, period, _ := strings.Cut(read("cpu.max"), " ")
	if g.version == 1 {
		time, period = read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")
	}
	t, err := strconv.ParseFloat(time, 64)
	p, wrong := strconv.ParseFloat(period, 64)
	if err != nil || wrong != nil || t <= 0 || p <= 0 { // max and -1 are none
		return 0
	}
	return t / p
}
