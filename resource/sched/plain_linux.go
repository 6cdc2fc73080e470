package sched

import (
	"github.com/llamatap/llamatap/resource/bpf"
)

// newWalker lists the threads of a target from /proc.
func newWalker(c *Collector) (*walker, error) {
	t := c.o.Target
	return newWalk(c.root, walk{pids: t.PIDs, only: t.Later, comm: t.Comm, cgroup: t.Cgroup})
}

// presentPlain does what each_task does, where the kernel's types are unknown: it lists the threads from /proc, and
// opens accounts for those that have none. What such a one does at first is guessed from the letter of its state: R
// is computing, D waits for a disk, all else idles.
func (c *Collector) presentPlain(now int64) (map[threadKey]*present, error) {
	if c.o.Follow {
		if m := c.set.Map("target_pids"); m != nil { // the programs have added processes to the target
			if err := bpf.Each(m, func(pid uint32, _ uint8) { c.walk.add(int(pid)) }); err != nil {
				return nil, err
			}
		}
	}
	threads, err := c.walk.threads()
	if err != nil {
		return nil, err
	}
	all := make(map[threadKey]*present, len(threads))
	for _, s := range threads {
		key := threadKey{TID: uint32(s.tid)}
		all[key] = &present{tgid: uint32(s.tgid), counted: true, minor: s.minor, major: s.major, comm: s.comm}
		if c.history[key] != nil {
			continue
		}
		state := uint64(idle)
		switch s.state {
		case 'R':
			state = onCPU
		case 'D':
			state = blockedDisk
		}
		a := accounts{
			Born: uint64(now), Mark: uint64(now)<<stateBits | state, TGID: uint32(s.tgid), Call: -1,
			MinorFirst: s.minor, MajorFirst: s.major,
		}
		if s.ofKernel() {
			a.Call = callOfKernel
		}
		if err := c.table.begin(key, a); err != nil {
			return nil, err
		}
	}
	return all, nil
}
