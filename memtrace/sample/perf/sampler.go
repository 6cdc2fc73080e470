package perf

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/llamatap/llamatap/memtrace"
)

// SamplerOptions configure a Sampler. The zero value samples the calling process.
type SamplerOptions struct {
	PID int // 0: the calling process
	PMUConfig
	Pages    int  // size of each CPU's ring, a power of two; 0 = 64
	Children bool // sample child processes too
}

// Sampler samples accesses to the memory of a process. It is for one goroutine.
type Sampler struct {
	*Session
	Notes    []string // what was omitted and why, one line each
	UserOnly bool     // what the kernel does for the process is missing
	Ops      bool     // accesses are known to be reads or writes
	// Other, unless it is nil, is passed the records that are not samples: processes and their mappings.
	Other   func(*Record)
	access  func(*Record, *memtrace.Access) bool // reads a sample; false: it is of no memory of the process
	without uint64
}

// OpenSampler begins to sample. Without the required permissions it first omits physical addresses, then the
// kernel's accesses on behalf of the process; Notes report what was omitted.
func OpenSampler(o SamplerOptions) (*Sampler, error) {
	return openSampler(o, func(c PMUConfig) (*PMU, error) { return findPMU(os.DirFS(devices), c) })
}

func openSampler(o SamplerOptions, find func(PMUConfig) (*PMU, error)) (*Sampler, error) {
	config := o.PMUConfig
	s := &Sampler{Ops: true}
	for {
		p, err := find(config)
		if err != nil {
			return nil, err
		}
		if p.Aux {
			return nil, fmt.Errorf("%w: %s is here, but is not read while a program runs: perf record -e %s -- "+
				"PROGRAM, and import perf.data",
				ErrNoPMU, p.Family, p.Events[0].Name)
		}
		s.UserOnly = config.UserOnly
		s.access = func(r *Record, a *memtrace.Access) bool {
			if r.Sample.Addr == 0 {
				s.without++
				return false
			}
			attr := &p.Events[r.Event].Attr
			*a = r.Sample.Access(attr.SampleType, attr.Period, p.Collector)
			return true
		}
		s.Session, err = Open(o.session(p.Events, config.UserOnly))
		if err == nil {
			return s, nil
		}
		if !denied(err) {
			return nil, err
		}
		switch {
		case config.PhysAddr:
			config.PhysAddr = false
			s.Notes = append(s.Notes, "without physical addresses: "+err.Error())
		case !config.UserOnly:
			config.UserOnly = true
			s.Notes = append(s.Notes, "without what the kernel does for the process: "+err.Error())
		default:
			return nil, err
		}
	}
}

// session are the options of the session that a sampler reads.
func (o *SamplerOptions) session(events []eventSpec, userOnly bool) Options {
	return Options{PID: o.PID, Events: events, Pages: o.Pages, Children: o.Children, UserOnly: userOnly}
}

// denied reports whether a user with more rights may open what could not be opened.
func denied(err error) bool {
	return !errors.Is(err, ErrRing) && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM))
}

// Drain passes the accesses in the rings to each. It returns each's first error and the number of samples, including
// those without an address, which are not passed on.
func (s *Sampler) Drain(each func(memtrace.Access) error) (int, error) {
	return s.Session.Drain(func(r *Record) error {
		if r.Type != recordSample {
			if s.Other != nil {
				s.Other(r)
			}
			return nil
		}
		var a memtrace.Access
		if !s.access(r, &a) {
			return nil
		}
		return each(a)
	})
}

// Stats counts what was read so far, and what was lost.
func (s *Sampler) Stats() Stats {
	stats := s.Session.Stats()
	stats.WithoutAddress = s.without
	return stats
}
