package sched

//go:generate ../../scripts/generate-bpf sched sched.bpf.c

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cilium/ebpf/link"

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
	o       Options
	root    fs.FS
	set     *bpf.Set // nil without BPF
	table   *table
	each    *link.Iter // lists the threads that are there; nil without BTF
	walk    *walker    // lists them from /proc; nil with BTF
	m       moment
	lost    uint64
	history map[threadKey]*history
	polled  map[threadKey]*polled
	missing []string
}

// Open starts to watch. Where BPF cannot run it polls /proc, and each line says so and why (Missing). It is an
// error where that cannot be done either, or a target cannot be watched.
func Open(o Options) (*Collector, error) {
	c := &Collector{o: o, root: os.DirFS("/"), history: map[threadKey]*history{}, polled: map[threadKey]*polled{}}
	c.m.last = bpf.MonoNS() // no thread is seen before
	if !o.Poll {
		err := c.load(o.Plain)
		if errors.Is(err, bpf.ErrMissing) && !o.Plain && !errors.Is(err, fs.ErrPermission) {
			c.missing = append(c.missing, "the kernel's types cannot be used: "+err.Error())
			err = c.load(true)
		}
		if err != nil && !errors.Is(err, bpf.ErrMissing) {
			return nil, err // a target that cannot be meant
		}
		if err != nil {
			c.missing = append(c.missing, "polled from /proc: "+err.Error())
		}
	}
	if c.each == nil {
		var err error
		if c.walk, err = newWalker(c); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	err := c.begin()
	if err == nil {
		_, err = c.snapshot(time.Now()) // nobody's: from it on all programs run and all threads are known
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// load loads and attaches the programs.
func (c *Collector) load(plain bool) error {
	spec, err := loadSched()
	if err != nil {
		return err
	}
	o := bpf.Options{
		Target: c.o.Target, Plain: plain, Manual: []string{"each_task"},
		Optional: []string{"on_fault", "on_fault_plain"},
	}
	k := knownKernel()
	o.Set = map[string]any{"switch_has_state": k.switchHasState, "queues_known": k.queues, "follow": c.o.Follow}
	if k.queues {
		o.Manual = append(o.Manual, "on_wakeup") // not attached
	}
	size := tableSize(c.o.Threads)
	o.Set["threads_mask"] = size - 1
	o.MaxEntries = map[string]uint32{"threads": size, "claims": 2*size + 256}
	set, err := bpf.Load(spec, o)
	if err != nil {
		return err
	}
	if c.table, err = openTable(set, size); err != nil {
		return errors.Join(err, set.Close())
	}
	if !set.Plain {
		each, err := link.AttachIter(link.IterOptions{Program: set.Program("each_task")})
		if err != nil {
			return errors.Join(fmt.Errorf("attach each_task: %w", err), set.Close())
		}
		set.Keep(each)
		c.each, c.m.final = each, true
	}
	for name, err := range set.Absent {
		c.missing = append(c.missing,
			"page_faults are the kernel's counts of minor and major ones: "+name+": "+err.Error())
	}
	c.set = set
	return nil
}

// AddPID adds a process to a target of processes.
func (c *Collector) AddPID(pid int) error {
	c.o.Target.PIDs = append(c.o.Target.PIDs, pid)
	if c.walk != nil {
		c.walk.add(pid)
	}
	if c.set == nil {
		return nil
	}
	if err := c.set.AddPID(pid); err != nil {
		return err
	}
	return c.begin()
}

// begin opens the accounts of the threads that are there. Polled, there are none.
func (c *Collector) begin() error {
	if c.set == nil {
		return nil
	}
	_, err := c.present(bpf.MonoNS())
	return err
}

// Origin says where the figures come from, in the words of resource.
func (c *Collector) Origin() string {
	if c.set == nil {
		return resource.OriginProc
	}
	return c.set.Origin()
}

// Missing says what could not be had, one sentence each: why BPF does not run, or which hook the kernel lacks.
func (c *Collector) Missing() []string { return c.missing }

// Programs returns the cost of the programs since they were loaded, as far as the kernel counted (bpf.EnableStats);
// none without BPF.
func (c *Collector) Programs() ([]bpf.ProgramStat, error) {
	if c.set == nil {
		return nil, nil
	}
	return c.set.Programs()
}

// Close stops to watch.
func (c *Collector) Close() error {
	if c.set == nil {
		return nil
	}
	err := c.set.Close()
	c.set, c.each = nil, nil
	return err
}
