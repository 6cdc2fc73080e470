package perfmem

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Source is where samples come from.
type Source string

// The sources.
const (
	Hardware Source = "perf"   // loads and stores
	Faults   Source = "faults" // page faults, which every machine has
)

// Options say whose memory is sampled, and how.
type Options struct {
	PID int // 0: the calling process
	// Sources are tried in their order, until one opens; none: Hardware alone.
	Sources []Source
	Wish
	Pages    int  // of each CPU's ring, a power of two; 0 = 64
	Children bool // child processes too
}

// Sampler tells of sampled accesses. It is for one goroutine.
type Sampler struct {
	session *perfevent.Session
	events  []perfevent.EventSpec
	from    memtrace.Collector
	source  Source
	notes   []string
	without uint64
	other   func(*perfevent.Record)
}

// Open begins to sample. It does with less where the rights for more are missing: without physical addresses,
// without the kernel's accesses on the process's behalf, from the next source. Notes say what was left out and why.
func Open(o Options) (*Sampler, error) {
	if len(o.Sources) == 0 {
		o.Sources = []Source{Hardware}
	}
	var notes []string
	var failed []error
	for _, source := range o.Sources {
		s, err := open(o, source)
		if err == nil {
			s.notes = append(notes, s.notes...)
			return s, nil
		}
		failed = append(failed, err)
		notes = append(notes, fmt.Sprintf("%s: %v", source, err))
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, fmt.Errorf("no source of samples opens: %w", join(failed))
}

// join makes one line of several errors.
func join(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

// open opens one source, with as much as the rights are for.
func open(o Options, source Source) (*Sampler, error) {
	wish, err := o.Wish, error(nil)
	var notes []string
	for {
		s := &Sampler{source: source, notes: notes}
		if err = s.describe(source, wish); err != nil {
			return nil, err
		}
		s.session, err = perfevent.Open(perfevent.Options{PID: o.PID, Events: s.events, Pages: o.Pages, Children: o.Children, UserOnly: wish.UserOnly})
		if err == nil {
			return s, nil
		}
		if errors.Is(err, perfevent.ErrRing) || !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			return nil, err
		}
		switch {
		case wish.PhysAddr:
			wish.PhysAddr = false
			notes = append(notes, "without physical addresses: "+err.Error())
		case !wish.UserOnly:
			wish.UserOnly = true
			notes = append(notes, "without what the kernel does for the process: "+err.Error())
		default:
			return nil, err
		}
	}
}

// describe says which events a source has.
func (s *Sampler) describe(source Source, w Wish) error {
	switch source {
	case Faults:
		s.from = memtrace.CollectorFault
		// With SamplePeriod the kernel would tell every fault of a software event, whatever the period.
		s.events = []perfevent.EventSpec{{Name: "page-faults", Attr: perfevent.Attr{
			Type: perfevent.TypeSoftware, Config: perfevent.SWPageFaults, Period: max(w.Period, 1),
			SampleType: perfevent.SampleIP | perfevent.SampleTID | perfevent.SampleTime | perfevent.SampleAddr | perfevent.SampleCPU,
		}}}
		return nil
	case Hardware:
		p, err := Find(os.DirFS(devices), w)
		if err != nil {
			return err
		}
		if p.Aux {
			return fmt.Errorf("%w: %s is here, but is not read while a program runs: perf record -e %s -- PROGRAM, and import perf.data", ErrNoPMU, p.Family, p.Events[0].Name)
		}
		s.from, s.events = p.Collector, p.Events
		return nil
	}
	return fmt.Errorf("unknown source %q: use %q or %q", source, Hardware, Faults)
}

// Source is the source that opened.
func (s *Sampler) Source() Source { return s.source }

// Notes are what was left out, and why, one line each.
func (s *Sampler) Notes() []string { return s.notes }

// Others hands the records that are no samples, of processes and what they map, to a function from now on, which
// Drain calls.
func (s *Sampler) Others(each func(*perfevent.Record)) { s.other = each }

// Drain hands on the accesses that are in the rings now. It returns each's first error, and how many samples there
// were, those without an address, which are not handed on, among them.
func (s *Sampler) Drain(each func(memtrace.Access) error) (int, error) {
	return s.session.Drain(func(r *perfevent.Record) error {
		if r.Type != perfevent.RecordSample {
			if s.other != nil {
				s.other(r)
			}
			return nil
		}
		if r.Sample.Addr == 0 {
			s.without++
			return nil
		}
		attr := &s.events[r.Event].Attr
		return each(r.Sample.Access(attr.SampleType, attr.Period, s.from))
	})
}

// Wait waits until a ring is a quarter full, or for a time; perfevent.ErrGone says that the process has ended.
func (s *Sampler) Wait(atMost time.Duration) (bool, error) { return s.session.Wait(atMost) }

// Stats is what was read until now, and what was lost.
func (s *Sampler) Stats() perfevent.Stats { return s.session.Stats() }

// WithoutAddress is how many samples were of operations that touched no memory.
func (s *Sampler) WithoutAddress() uint64 { return s.without }

// Stop ends the sampling; what is in the rings can still be drained.
func (s *Sampler) Stop() error { return s.session.Disable() }

// Close ends it and gives the rings back.
func (s *Sampler) Close() error { return s.session.Close() }
