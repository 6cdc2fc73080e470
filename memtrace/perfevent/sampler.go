package perfevent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/memtrace"
)

// SamplerOptions configure a Sampler. The zero value samples the calling process.
type SamplerOptions struct {
	PID int // 0: the calling process
	PMUConfig
	Pages    int  // size of each CPU's ring, a power of two; 0 = 64
	Children bool // sample child processes too
}

// Sampler samples loads and stores of a process with the machine's PMU. It is for one goroutine.
type Sampler struct {
	session *Session
	events  []EventSpec
	from    memtrace.Collector
	notes   []string
	without uint64
	other   func(*Record)
}

// OpenSampler begins to sample. Without the required permissions it first omits physical addresses, then the
// kernel's accesses on behalf of the process; Notes report what was omitted.
func OpenSampler(o SamplerOptions) (*Sampler, error) {
	return openSampler(o, func(c PMUConfig) (*PMU, error) { return FindPMU(os.DirFS(devices), c) })
}

func openSampler(o SamplerOptions, find func(PMUConfig) (*PMU, error)) (*Sampler, error) {
	config := o.PMUConfig
	s := &Sampler{}
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
		s.from, s.events = p.Collector, p.Events
		s.session, err = Open(Options{
			PID: o.PID, Events: s.events, Pages: o.Pages, Children: o.Children, UserOnly: config.UserOnly,
		})
		if err == nil {
			return s, nil
		}
		if errors.Is(err, ErrRing) || !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			return nil, err
		}
		switch {
		case config.PhysAddr:
			config.PhysAddr = false
			s.notes = append(s.notes, "without physical addresses: "+err.Error())
		case !config.UserOnly:
			config.UserOnly = true
			s.notes = append(s.notes, "without what the kernel does for the process: "+err.Error())
		default:
			return nil, err
		}
	}
}

// Notes report what was omitted and why, one line each.
func (s *Sampler) Notes() []string { return s.notes }

// Others sets the function to which Drain passes the records that are not samples: processes and their mappings.
func (s *Sampler) Others(each func(*Record)) { s.other = each }

// Drain passes the accesses in the rings to each. It returns each's first error and the number of samples, including
// those without an address, which are not passed on.
func (s *Sampler) Drain(each func(memtrace.Access) error) (int, error) {
	return s.session.Drain(func(r *Record) error {
		if r.Type != RecordSample {
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

// Wait waits until a ring is a quarter full, or for a time. ErrGone: the process has ended.
func (s *Sampler) Wait(atMost time.Duration) (bool, error) { return s.session.Wait(atMost) }

// Stats counts what was read so far, and what was lost.
func (s *Sampler) Stats() Stats { return s.session.Stats() }

// WithoutAddress is the number of samples of operations that accessed no memory.
func (s *Sampler) WithoutAddress() uint64 { return s.without }

// Stop ends the sampling. What is in the rings can still be drained.
func (s *Sampler) Stop() error { return s.session.Disable() }

// Close stops the sampling and frees the rings.
func (s *Sampler) Close() error { return s.session.Close() }
