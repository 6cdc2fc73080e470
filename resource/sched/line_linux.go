package sched

import (
	"cmp"
	"io/fs"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// addPressure adds the pressure on the machine, and on the target's control group of version 2.
func addPressure(line *resource.SystemLine, root fs.FS, target bpf.Target) (err error) {
	if line.Pressure, err = stalls(root, machinePressure, ""); err != nil {
		return err
	}
	var dir string
	if target.Cgroup != "" {
		dir = groupFolder(root, target.Cgroup)
	} else if len(target.PIDs) > 0 {
		dir = groupOf(root, target.PIDs[0])
	}
	if dir == "" {
		return nil
	}
	group, err := stalls(root, dir, ".pressure")
	if len(group) > 0 {
		line.CgroupPressure = group
	}
	return err
}

// process is what is known of a process in an interval.
type process struct {
	line    resource.ProcessLine
	waits   resource.Histogram
	maxWait uint64
}

// resident is the resident memory of processes, in bytes, by their ids. One that has ended has none, and one that did
// nothing neither unless withIdle.
func (c *Collector) resident(threadTimes []spent, withIdle bool) map[int]uint64 {
	bytes := map[int]uint64{}
	for i := range threadTimes {
		pid := threadTimes[i].line.TGID
		if _, isRead := bytes[pid]; isRead || !withIdle && !threadTimes[i].active() {
			continue
		}
		if rss, err := resource.ResidentBytes(c.root, strconv.Itoa(pid)); err == nil {
			bytes[pid] = rss
		}
	}
	return bytes
}

// countFaults takes the kernel's counts for the page faults of threads, where none is seen singly.
func (c *Collector) countFaults(threadTimes []spent) {
	if c.programs != nil && c.programs.Absent["on_fault"] == nil && c.programs.Absent["on_fault_plain"] == nil {
		return
	}
	for i := range threadTimes {
		threadTimes[i].line.Faults = valueOrZero(threadTimes[i].line.Minor) + valueOrZero(threadTimes[i].line.Major)
	}
}

// put fills a line with threads and their processes. With withIdle it has processes that did nothing, too.
func put(line *resource.SystemLine, threadTimes []spent, resident map[int]uint64, withIdle bool) {
	line.OffCPU, line.Faults = map[string]int64{}, map[string]uint64{}
	line.Threads, line.Processes = []resource.ThreadLine{}, []resource.ProcessLine{}
	var of *process
	end := func() {
		if of != nil {
			of.put(line, resident, withIdle)
		}
	}
	for _, s := range sorted(threadTimes) {
		if of == nil || of.line.PID != s.line.TGID {
			end()
			of = &process{line: resource.ProcessLine{PID: s.line.TGID}}
		}
		if of.line.Comm == "" || s.line.TID == s.line.TGID { // the first thread has the process's name
			of.line.Comm = s.line.Comm
		}
		of.line.Threads++
		of.line.OnCPUNS += s.line.OnCPUNS
		of.line.OffCPUNS += s.line.OffCPUNS()
		of.line.Faults += s.line.Faults
		of.line.Minor, of.line.Major = sum(of.line.Minor, s.line.Minor), sum(of.line.Major, s.line.Major)
		of.waits.Merge(&s.waits)
		of.maxWait = max(of.maxWait, s.maxWait)
		if !s.active() {
			continue
		}
		line.Threads = append(line.Threads, s.line)
		if off := s.line.OffCPUNS(); off > 0 {
			line.OffCPU[strconv.Itoa(s.line.TID)] = off
		}
	}
	end()
}

func (p *process) put(line *resource.SystemLine, resident map[int]uint64, withIdle bool) {
	active := p.line.OnCPUNS > 0 || p.line.OffCPUNS > 0 || p.line.Faults > 0
	if !active && !withIdle {
		return
	}
	if p.line.Faults > 0 {
		line.Faults[strconv.Itoa(p.line.PID)] = p.line.Faults
	}
	if rss, ok := resident[p.line.PID]; ok {
		p.line.RSSBytes = &rss
	}
	p.line.RunQueue = resource.NewWaitFigure(&p.waits, p.maxWait)
	line.Processes = append(line.Processes, p.line)
}

func valueOrZero(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

// sum adds two figures of which either may be unknown.
func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	total := *a + *b
	return &total
}

// sorted returns the threads of a line in their order.
func sorted(threadTimes []spent) []spent {
	slices.SortFunc(threadTimes, func(a, b spent) int {
		if a.line.TGID != b.line.TGID {
			return a.line.TGID - b.line.TGID
		}
		return a.line.TID - b.line.TID
	})
	return threadTimes
}
