package sample

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// The names of the collectors.
const (
	Perf   = "perf"   // loads and stores that the processor samples
	Faults = "faults" // page faults
	Pages  = "pages"  // pages that were written: nothing of a Set, see [Set.Pages]
)

// Options say which collectors run, and for whom. PID and Choices are needed.
type Options struct {
	// Choices are the collectors to run, all of them; of each choice the first that opens.
	Choices [][]string
	PID     int
	// Children is true if what the process starts is sampled too.
	Children bool
	// Period is how many events of Perf there are per sample; 0 = what is usual for the processor.
	Period uint64
	// RingBytes is the memory of each CPU's ring, a power of two. 0 = MostRing, or less where the kernel allows no
	// more.
	RingBytes int
	// MostRing bounds it where RingBytes is 0; 0 = 4 MiB.
	MostRing int
	// Mapped, unless it is nil, is handed what processes map and what becomes of them. It is called by the
	// collectors' goroutines.
	Mapped func(*perf.Record)
}

// Set is collectors that run beside a process. Its methods are for one goroutine.
type Set struct {
	queue      *Queue
	collectors []*Collector
	pages      bool
	stop       chan struct{}
	started    bool
	stopped    bool
}

// Collector is one of a set.
type Collector struct {
	Name  string   // perf or faults
	Notes []string // what was left out, and why, one line each
	Ring  int      // bytes of each CPU's
	src   *perf.Sampler
	done  chan struct{}
	mu    sync.Mutex
	stats perf.Stats
	err   error
}

// Sizes of rings, in bytes per CPU.
const (
	usualRing = 4 << 20
	leastRing = 32 << 10
)

// ErrNone occurs when of a choice no collector opens. The error that wraps it names each, with cause and remedy.
var ErrNone = errors.New("no collector of samples")

// Open opens the collectors. From now on the kernel fills their rings; Start lets them be read, into the queue.
// Where one of the choices has no collector that runs, none does.
func Open(o Options, q *Queue) (*Set, error) {
	s := &Set{queue: q, stop: make(chan struct{})}
	for _, choice := range o.Choices {
		if err := s.choose(o, choice); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// choose opens the first of a choice that opens.
func (s *Set) choose(o Options, choice []string) error {
	var failed []string
	var first error
	for _, name := range choice {
		err := s.open(o, name, failed)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
		failed = append(failed, fmt.Sprintf("%s: %v", name, err))
	}
	if len(failed) == 1 && !slices.Contains(choice, Faults) {
		return fmt.Errorf("%s: %w; leave it out, or let page faults take its place: %s:faults", choice[0], first,
			choice[0])
	}
	if len(failed) == 1 {
		return fmt.Errorf("%s: %w", choice[0], first)
	}
	return fmt.Errorf("%w: %s", ErrNone, strings.Join(failed, "; "))
}

// open opens a collector. notes are why those before it in its choice did not open.
func (s *Set) open(o Options, name string, notes []string) error {
	options := perf.SamplerOptions{PID: o.PID, PMUConfig: perf.PMUConfig{Period: o.Period}, Children: o.Children}
	var open func() (*perf.Sampler, error)
	switch name {
	case Pages:
		err := CanWatch()
		s.pages = s.pages || err == nil
		return err
	case Perf:
		open = func() (*perf.Sampler, error) { return perf.OpenSampler(options) }
	case Faults:
		open = func() (*perf.Sampler, error) { return perf.OpenFaults(options, true) }
	default:
		return fmt.Errorf("unknown collector of samples %q: use %s, %s or %s", name, Perf, Faults, Pages)
	}
	c := &Collector{Name: name, Ring: o.RingBytes, done: make(chan struct{})}
	least := o.RingBytes
	if o.RingBytes == 0 {
		c.Ring, least = usualRing, leastRing
		for o.MostRing != 0 && c.Ring > max(o.MostRing, leastRing) {
			c.Ring /= 2
		}
	}
	for {
		options.Pages = max(c.Ring/os.Getpagesize(), 1)
		var err error
		if c.src, err = open(); err == nil {
			break
		}
		if !errors.Is(err, perf.ErrRing) || c.Ring <= least {
			return err
		}
		c.Ring /= 2
	}
	c.src.Other = o.Mapped
	c.Notes = slices.Concat(notes, c.src.Notes)
	if name == Perf {
		c.Notes = append(c.Notes, perf.NotYetRun)
	}
	s.collectors = append(s.collectors, c)
	return nil
}

// Try opens a collector for this process and closes it. notes are what it leaves out; err says why it does not run
// here.
func Try(name string) (notes []string, err error) {
	var s Set
	if err := s.open(Options{PID: os.Getpid()}, name, nil); err != nil {
		return nil, err
	}
	for _, c := range s.collectors {
		notes = append(notes, c.Notes...)
		err = c.src.Close()
	}
	return notes, err
}

// Pages reports whether written pages were chosen. The caller scans them: only it knows which ranges, and when.
func (s *Set) Pages() bool { return s != nil && s.pages }

// Collectors are those that run, in the order of the choices.
func (s *Set) Collectors() []*Collector { return s.collectors }

// Start lets the collectors be read from now on, each by a goroutine, until Stop or the end of the process.
func (s *Set) Start() {
	s.started = true
	for _, c := range s.collectors {
		go c.run(s.queue, s.stop)
	}
}

// readEvery is how long samples lie in a ring that does not fill.
const readEvery = 20 * time.Millisecond

func (c *Collector) run(q *Queue, stop <-chan struct{}) {
	defer close(c.done)
	put := func(a memtrace.Access) error {
		q.Put(&a)
		return nil
	}
	for {
		ended := false
		select {
		case <-stop:
			ended = true
		default:
			_, err := c.src.Wait(readEvery)
			ended = errors.Is(err, perf.ErrGone)
			if !ended {
				c.note(err)
			}
		}
		if ended {
			c.note(c.src.Stop())
		}
		_, err := c.src.Drain(put)
		c.note(err)
		if ended {
			return
		}
	}
}

// note keeps the first error, and the figures.
func (c *Collector) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.err == nil {
		c.err = err
	}
	c.stats = c.src.Stats()
}

// Stats returns what the collector has read so far.
func (c *Collector) Stats() perf.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Err is the first error of reading it.
func (c *Collector) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stop ends the sampling. All samples are in the queue when it returns.
func (s *Set) Stop() {
	if s == nil || s.stopped {
		return
	}
	s.stopped = true
	close(s.stop)
	for _, c := range s.collectors {
		if s.started {
			<-c.done
		}
	}
}

// Close ends the sampling and gives the rings back.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	s.Stop()
	var errs []error
	for _, c := range s.collectors {
		if c.src != nil {
			errs = append(errs, c.src.Close())
			c.src = nil
		}
	}
	return errors.Join(errs...)
}
