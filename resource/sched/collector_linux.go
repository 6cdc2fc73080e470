package sched

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// Options say what a Collector looks at. The zero value is all processes, from BPF where it can run, else from /proc.
type Options struct {
	Target bpf.Target
	// Follow takes what a process of Target.PIDs starts, and what that starts, as well.
	Follow   bool
	Interval time.Duration // nominal, for the lines
	// Computed says how much of a time on CLOCK_MONOTONIC, in ns, the run computed graphs in; nil: there is no run.
	Computed func(from, to int64) resource.GraphTime
	// Plain takes the programs for kernels without BTF, Poll reads /proc alone.
	Plain, Poll bool
	// Threads bounds how many threads are known at once, those included that ended since the last snapshot: 0 is
	// 8192; a power of two is taken. The kernel's memory for it, 500 bytes for each, does not change.
	Threads uint32
}

// A Collector records what threads did between snapshots. Its methods are for one goroutine.
type Collector struct {
	o        Options
	root     fs.FS
	walk     *walker
	programs *programs // nil without BPF
	poller   poller    // then
	m        moment
	quotas   quotas
	missing  []string
}

// Open starts to watch. Where BPF cannot run it polls /proc, and each line says so and why (Missing). It is an
// error where that cannot be done either, or a target cannot be watched.
func Open(o Options) (*Collector, error) {
	c := &Collector{o: o, root: os.DirFS("/")}
	c.quotas.root = c.root
	c.m.last = bpf.MonoNS() // no thread is seen before
	var unlisted error      // of importance where threads are listed from /proc
	c.walk, unlisted = newWalk(c.root, o.Target)
	if !o.Poll {
		var err error
		c.programs, err = loadPrograms(o, o.Plain, c.walk)
		if errors.Is(err, bpf.ErrMissing) && !o.Plain && !errors.Is(err, fs.ErrPermission) {
			c.missing = append(c.missing, "the kernel's types cannot be used: "+err.Error())
			c.programs, err = loadPrograms(o, true, c.walk)
		}
		if err != nil && !errors.Is(err, bpf.ErrMissing) {
			return nil, err // a target that cannot be meant
		}
		if err != nil {
			c.missing = append(c.missing, "polled from /proc: "+err.Error())
		}
	}
	var err error
	if c.programs == nil || c.programs.each == nil {
		err = unlisted
	}
	if c.programs != nil {
		c.m.final = c.programs.each != nil
		for name, err := range c.programs.Absent {
			c.missing = append(c.missing,
				"page_faults are the kernel's counts of minor and major ones: "+name+": "+err.Error())
		}
		if err == nil {
			_, err = c.programs.present(bpf.MonoNS())
		}
	}
	c.poller.walker = c.walk
	if err == nil {
		_, err = c.snapshot(time.Now()) // nobody's: from it on all programs run and all threads are known
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// AddPID adds a process to a target of processes.
func (c *Collector) AddPID(pid int) error {
	if c.o.Target.PIDs = append(c.o.Target.PIDs, pid); len(c.o.Target.PIDs) == 1 {
		c.quotas.since(pid) // counts from here on
	}
	if c.walk != nil {
		c.walk.add(pid)
	}
	if c.programs == nil {
		return nil
	}
	if err := c.programs.AddPID(pid); err != nil {
		return err
	}
	_, err := c.programs.present(bpf.MonoNS()) // opens the accounts of its threads
	return err
}

// Snapshot returns what happened since the snapshot before, or since Open, as a *bpf.Draft of a resource.SystemLine:
// its threads have no role before it is known when graphs were computed.
func (c *Collector) Snapshot(now time.Time) (any, error) {
	draft, err := c.snapshot(now)
	if err != nil {
		return nil, err
	}
	return draft, nil
}

func (c *Collector) snapshot(now time.Time) (*bpf.Draft, error) {
	c.m.now = bpf.MonoNS()
	line := &resource.SystemLine{
		HostHeader: resource.NewHostHeader(now, c.m.now, c.o.Interval, time.Duration(c.m.now-c.m.last), c.Origin()),
		Missing:    c.missing,
	}
	if pids := c.o.Target.PIDs; len(pids) > 0 {
		line.CgroupCPU = c.quotas.since(pids[0]) // first: it has to be of the same interval, and the rest may wait
	}
	var threadTimes []spent
	var err error
	if c.programs == nil {
		threadTimes, err = c.poller.read(c.m)
	} else {
		threadTimes, err = c.programs.read(c.m, &line.Lost)
	}
	if c.m.epoch++; err != nil {
		return nil, err
	}
	from, to := c.m.last, c.m.now
	c.m.last = to
	if err := addPressure(line, c.root, c.o.Target); err != nil {
		return nil, err
	}
	c.countFaults(threadTimes)
	withIdle := len(c.o.Target.PIDs) > 0
	resident := c.resident(threadTimes, withIdle)
	return bpf.NewDraft(to, func() any {
		computed := c.o.Computed
		if computed == nil {
			computed = func(_, _ int64) (none resource.GraphTime) { return none }
		}
		assignRoles(threadTimes, from, to, computed)
		put(line, threadTimes, resident, withIdle)
		return *line
	}), nil
}

// Origin says where the figures come from, in the words of resource.
func (c *Collector) Origin() string {
	if c.programs == nil {
		return resource.OriginProc
	}
	return resource.OriginOf(c.programs.Plain)
}

// Missing says what could not be had, one sentence each: why BPF does not run, or which hook the kernel lacks.
func (c *Collector) Missing() []string { return c.missing }

// Programs returns the cost of the programs since they were loaded, as far as the kernel counted (bpf.EnableStats);
// none without BPF.
func (c *Collector) Programs() ([]bpf.ProgramStat, error) {
	if c.programs == nil {
		return nil, nil
	}
	return c.programs.Programs()
}

// Close stops to watch.
func (c *Collector) Close() error {
	if c.programs == nil {
		return nil
	}
	err := c.programs.Close()
	c.programs = nil
	return err
}
