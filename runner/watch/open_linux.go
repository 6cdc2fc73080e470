package watch

import (
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

// Open opens collectors by their names: block, system, waits, prof. Events that prof makes of what block or system
// count are made of their last snapshots where these are opened with it and are asked first, and else of collectors
// of its own.
func Open(names []string, r Request) []Opened {
	var all []Opened
	lines := map[string]*kept{}
	for _, name := range names {
		o := Opened{Name: name}
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
		all = append(all, o)
	}
	return all
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

func (o *Opened) openBlock(r Request) {
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

func (o *Opened) openSystem(r Request) {
	c, err := sched.Open(sched.Options{Interval: r.Interval, Target: r.Target, Follow: true, Computed: r.Computed})
	if o.Err = err; err != nil {
		return
	}
	o.Collector, o.Origin, o.Missing = c, c.Origin(), c.Missing()
}

func (o *Opened) openWaits(r Request) {
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
func (o *Opened) openProf(r Request, lines map[string]*kept) {
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
		options.Also = append(options.Also, p.also("block", r, lines, (*Opened).openBlock, diskEvents))
	}
	if wants[resource.ProfTypeMem] || wants[resource.ProfTypeSched] {
		options.Also = append(options.Also, p.also("system", r, lines, (*Opened).openSystem, systemEvents(wants)))
	}
	c, err := prof.Open(options)
	if o.Err = err; err != nil {
		_ = p.close()
		return
	}
	p.Collector = c
	o.Collector, o.Origin, o.Missing = p, c.Origin(), append(p.missing, c.Missing()...)
}
