package watch

import (
	"errors"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

// profiler is prof with the collectors that it needs for itself.
type profiler struct {
	*prof.Collector
	own     []bpf.Collector
	missing []string
}

// also returns what makes events of another collector's snapshots. That is opened where nobody else has; where it
// cannot be, its events are left out.
func (p *profiler) also(name string, r Request, lines map[string]*kept, open func(*Opened, Request),
	events func(any) []resource.ProfEvent) prof.Source {
	if k := lines[name]; k != nil {
		return func(time.Time) ([]resource.ProfEvent, error) { return events(k.last), nil }
	}
	o := Opened{Name: name}
	open(&o, r)
	if o.Err != nil {
		p.missing = append(p.missing, name+": "+o.Err.Error())
		return func(time.Time) ([]resource.ProfEvent, error) { return nil, nil }
	}
	p.missing = append(p.missing, o.Missing...)
	p.own = append(p.own, o.Collector)
	return func(now time.Time) ([]resource.ProfEvent, error) {
		line, err := o.Collector.Snapshot(now)
		if err != nil {
			return nil, err
		}
		return events(line), nil
	}
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
	all, err := p.Collector.Programs()
	for _, c := range p.own {
		if costed, ok := c.(bpf.Costed); ok {
			more, failed := costed.Programs()
			all, err = append(all, more...), errors.Join(err, failed)
		}
	}
	return all, err
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
