package session

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/blockio"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/filemap"
	"github.com/llamatap/llamatap/resource/prof"
	"github.com/llamatap/llamatap/resource/sched"
)

// CollectorOptions say what host collectors look at, and how. What a collector has no use for it leaves alone.
type CollectorOptions struct {
	Interval time.Duration
	Target   bpf.Target
	// Computed says how much of a time on CLOCK_MONOTONIC, in ns, the run computed graphs in; nil: there is no run.
	Computed func(from, to int64) resource.GraphTime
	Devices  []string // block devices by name; empty: all
	// StrapBuckets writes the bounds of buckets as STRAP-LLM did, twice too large.
	StrapBuckets bool

	// Of prof:
	Only            []string // disk, syscalls, mem, sched, sync, net; empty: all
	SampleReadWrite int      // one in so many reads and writes is timed; 0 is 1
	Labels          map[string]string
	NoCorrelation   bool
	Run             string // names the run in correlation ids
	// Correlate says what a time belonged to, as resource.CorrID writes it; nil: the number of the interval.
	Correlate func(from, to time.Time) string
}

// Collector is a host collector that was opened, or could not be.
type Collector struct {
	Name      string
	Collector bpf.Collector
	Origin    string   // resource.OriginBPF and so on
	Missing   []string // what it has to do without, and why
	Err       error    // it could not be opened
}

// OpenCollectors opens collectors by their names: block, system, waits, prof. Events that prof makes of what block or
// system count are made of their last snapshots where these are opened with it and are asked first, and else of
// collectors of its own.
func OpenCollectors(names []string, r CollectorOptions) []Collector {
	var collectors []Collector
	lines := map[string]*kept{}
	for _, name := range names {
		o := Collector{Name: name}
		switch name {
		case "block":
			o.openBlock(r)
		case "system":
			o.openSystem(r)
		case "waits":
			o.openWaits(r)
		case "prof":
			o.openProf(r, lines)
		default:
			o.Err = fmt.Errorf("unknown collector %q: use block, system, waits, prof", name)
		}
		if o.Err == nil && (name == "block" || name == "system") {
			lines[name] = &kept{Collector: o.Collector}
			o.Collector = lines[name]
		}
		collectors = append(collectors, o)
	}
	return collectors
}

// kept is a collector whose last snapshot is remembered.
type kept struct {
	bpf.Collector
	last any
}

// Snapshot takes a snapshot and remembers it.
func (k *kept) Snapshot(now time.Time) (line any, err error) {
	k.last, err = k.Collector.Snapshot(now)
	return k.last, err
}

// AddPID adds a process to a target of processes.
func (k *kept) AddPID(pid int) error { return k.Collector.(bpf.Follower).AddPID(pid) }

// Programs returns the cost of the programs.
func (k *kept) Programs() ([]bpf.ProgramStat, error) { return k.Collector.(bpf.Costed).Programs() }

func (o *Collector) openBlock(r CollectorOptions) {
	c, err := blockio.Open(blockio.Options{Interval: r.Interval, Target: r.Target, Follow: true, Devices: r.Devices,
		Strap: r.StrapBuckets})
	if o.Err = err; err != nil {
		return
	}
	o.Collector, o.Origin = c, c.Origin()
	if err := c.Missing(); err != nil {
		o.Missing = []string{err.Error()}
	}
}

func (o *Collector) openSystem(r CollectorOptions) {
	c, err := sched.Open(sched.Options{Interval: r.Interval, Target: r.Target, Follow: true, Computed: r.Computed})
	if o.Err = err; err != nil {
		return
	}
	o.Collector, o.Origin, o.Missing = c, c.Origin(), c.Missing()
}

func (o *Collector) openWaits(r CollectorOptions) {
	c, err := filemap.Open(filemap.Options{Target: r.Target})
	if o.Err = err; err != nil {
		return
	}
	o.Collector, o.Origin = c, c.Origin()
	for name, reason := range c.Missing() {
		o.Missing = append(o.Missing, name+": "+reason)
	}
}

// openProf opens what prof itself counts, and what it needs of the others.
func (o *Collector) openProf(r CollectorOptions, lines map[string]*kept) {
	types, err := resource.ParseProfTypes(strings.Join(r.Only, ","))
	if o.Err = err; err != nil {
		return
	}
	p := &profiler{}
	options := prof.Options{
		Target: r.Target, Follow: true, Types: types, SampledOneOf: uint32(r.SampleReadWrite),
		Stamper: prof.Stamper{Run: r.Run, Labels: r.Labels, Correlate: r.Correlate, Uncorrelated: r.NoCorrelation},
	}
	wants := map[resource.ProfType]bool{}
	for _, t := range types {
		wants[t] = true
	}
	if wants[resource.ProfTypeDisk] {
		options.Also = append(options.Also, p.eventSource("block", r, lines, (*Collector).openBlock, diskEvents))
	}
	if wants[resource.ProfTypeMem] || wants[resource.ProfTypeSched] {
		options.Also = append(options.Also, p.eventSource("system", r, lines, (*Collector).openSystem,
			systemEvents(wants)))
	}
	c, err := prof.Open(options)
	if o.Err = err; err != nil {
		_ = p.close()
		return
	}
	p.Collector = c
	o.Collector, o.Origin, o.Missing = p, c.Origin(), append(p.missing, c.Missing()...)
}

// profiler is prof with the collectors that it needs for itself.
type profiler struct {
	*prof.Collector
	own     []bpf.Collector
	missing []string
}

// eventSource returns what makes events of another collector's snapshots. That is opened where nobody else has; where
// it cannot be, its events are left out.
func (p *profiler) eventSource(name string, r CollectorOptions, lines map[string]*kept,
	open func(*Collector, CollectorOptions), events func(any) []resource.ProfEvent) prof.Source {
	if k := lines[name]; k != nil {
		return func(time.Time) (func() []resource.ProfEvent, error) { return laterOf(events, k.last), nil }
	}
	o := Collector{Name: name}
	open(&o, r)
	if o.Err != nil {
		p.missing = append(p.missing, name+": "+o.Err.Error())
		return func(time.Time) (func() []resource.ProfEvent, error) { return laterOf(events, nil), nil }
	}
	p.missing = append(p.missing, o.Missing...)
	p.own = append(p.own, o.Collector)
	return func(now time.Time) (func() []resource.ProfEvent, error) {
		snapshot, err := o.Collector.Snapshot(now)
		if err != nil {
			return nil, err
		}
		return laterOf(events, snapshot), nil
	}
}

// laterOf makes events of a snapshot's line once that is complete.
func laterOf(events func(line any) []resource.ProfEvent, snapshot any) func() []resource.ProfEvent {
	return func() []resource.ProfEvent { return events(bpf.LineOf(snapshot)) }
}

// diskEvents are those of a line of block.
func diskEvents(line any) (events []resource.ProfEvent) {
	if l, ok := line.(*resource.BlockLine); ok {
		for _, e := range l.Disks() {
			events = append(events, e)
		}
	}
	return events
}

// systemEvents makes those of a line of system.
func systemEvents(wants map[resource.ProfType]bool) func(any) []resource.ProfEvent {
	return func(line any) (events []resource.ProfEvent) {
		l, ok := line.(resource.SystemLine)
		if ok && wants[resource.ProfTypeMem] {
			events = append(events, l.Mem())
		}
		if ok && wants[resource.ProfTypeSched] {
			events = append(events, l.Sched())
		}
		return events
	}
}

// AddPID adds a process to a target of processes.
func (p *profiler) AddPID(pid int) error {
	err := p.Collector.AddPID(pid)
	for _, c := range p.own {
		if f, ok := c.(bpf.Follower); ok {
			err = errors.Join(err, f.AddPID(pid))
		}
	}
	return err
}

// Programs returns the cost of the programs of all collectors.
func (p *profiler) Programs() ([]bpf.ProgramStat, error) {
	programStats, err := p.Collector.Programs()
	for _, c := range p.own {
		if costed, ok := c.(bpf.Costed); ok {
			more, failed := costed.Programs()
			programStats, err = append(programStats, more...), errors.Join(err, failed)
		}
	}
	return programStats, err
}

func (p *profiler) close() error {
	var err error
	for _, c := range p.own {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Close ends all collectors.
func (p *profiler) Close() error { return errors.Join(p.Collector.Close(), p.close()) }
