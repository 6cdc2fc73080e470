package process

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// SelfOptions configure a Self.
type SelfOptions struct {
	Interval time.Duration // nominal, for the lines
	// Costed are this process's collectors by name. The cost of their programs is reported if the kernel counts it
	// (bpf.EnableStats).
	Costed map[string]bpf.Costed
}

// Self measures the cost of this process between snapshots. Its methods are for one goroutine.
type Self struct {
	o      SelfOptions
	root   fs.FS
	before reading
}

// reading is the cost of the process so far.
type reading struct {
	mono     int64
	usage    unix.Rusage
	programs map[program]bpf.ProgramStat
}

type program struct{ collector, name string }

// OpenSelf begins to measure.
func OpenSelf(o SelfOptions) (*Self, error) {
	c := &Self{o: o, root: os.DirFS("/")}
	var err error
	c.before, err = c.read()
	return c, err
}

// Snapshot returns what happened since the snapshot before, or since Open, as a resource.SelfLine.
func (c *Self) Snapshot(now time.Time) (any, error) {
	r, err := c.read()
	if err != nil {
		return nil, err
	}
	rss, err := resource.ResidentBytes(c.root, "self")
	if err != nil {
		return nil, fmt.Errorf("what this process cost: %w; mount it: mount -t proc proc /proc", err)
	}
	b, took := c.before, time.Duration(r.mono-c.before.mono)
	c.before = r
	line := resource.SelfLine{
		HostHeader: resource.NewHostHeader(now, r.mono, c.o.Interval, took, resource.OriginProc),
		UserNS:     r.usage.Utime.Nano() - b.usage.Utime.Nano(), SystemNS: r.usage.Stime.Nano() - b.usage.Stime.Nano(),
		RSSBytes: rss, PeakBytes: uint64(r.usage.Maxrss) * 1024,
		Minor: uint64(r.usage.Minflt - b.usage.Minflt), Major: uint64(r.usage.Majflt - b.usage.Majflt),
		Voluntary: uint64(r.usage.Nvcsw - b.usage.Nvcsw), Involuntary: uint64(r.usage.Nivcsw - b.usage.Nivcsw),
	}
	line.CPUShare = share(line.UserNS+line.SystemNS, took)
	line.BPF = cost(r.programs, b.programs, took)
	return line, nil
}

func share(ns int64, of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return float64(ns) / float64(of)
}

// read takes a reading.
func (c *Self) read() (reading, error) {
	r := reading{mono: bpf.MonoNS(), programs: map[program]bpf.ProgramStat{}}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r.usage); err != nil {
		return r, fmt.Errorf("what this process cost: %w", err)
	}
	for name, costed := range c.o.Costed {
		programStats, err := costed.Programs()
		if err != nil {
			return r, fmt.Errorf("what the programs of %s cost: %w", name, err)
		}
		for _, p := range programStats {
			r.programs[program{name, p.Name}] = p
		}
	}
	return r, nil
}

// cost is the cost of programs between two readings; nil if nothing was counted.
func cost(now, before map[program]bpf.ProgramStat, took time.Duration) *resource.BPFCost {
	total := &resource.BPFCost{Programs: []resource.ProgramCost{}}
	for p, n := range now {
		b := before[p]
		runs, ns := n.Runs-min(n.Runs, b.Runs), int64(n.Time-min(n.Time, b.Time))
		if runs == 0 {
			continue
		}
		total.Runs += runs
		total.TimeNS += ns
		total.Programs = append(total.Programs, resource.ProgramCost{
			Collector: p.collector, Program: p.name, Runs: runs, TimeNS: ns, PerRunNS: float64(ns) / float64(runs),
		})
	}
	if total.Runs == 0 {
		return nil
	}
	total.CPUShare = share(total.TimeNS, took)
	slices.SortFunc(total.Programs, func(a, b resource.ProgramCost) int {
		return cmp.Or(cmp.Compare(a.Collector, b.Collector), cmp.Compare(a.Program, b.Program))
	})
	return total
}

// Close does nothing: there is nothing to free.
func (c *Self) Close() error { return nil }
