package pagefault

import (
	"errors"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Kind is which page faults are told.
type Kind uint8

// The kinds.
const (
	AllFaults   Kind = iota
	MinorFaults      // the page was in memory already, or is new
	MajorFaults      // it came from a disk
)

// Options say whose faults are told. The zero value is the calling process's, all of them.
type Options struct {
	PID  int // 0: the calling process
	Kind Kind
	// Period is how many faults there are per sample; 0 = 1: every one is told.
	Period uint64
	// Pages is the size of each CPU's ring in pages, a power of two; 0 = 64, which holds some 4,000 faults.
	Pages int
	// Children says that those of child processes are told too.
	Children bool
	// Ops asks what each fault was for, reading or writing. That takes the kernel's tracepoints, which x86 has, and
	// the right to see them; without, it is left out, and [Faults.Ops] tells. Tracepoints do not tell minor from
	// major faults.
	Ops bool
	// OnExec says that they are told from the next execve of the process on, which must be stopped before it.
	OnExec bool
}

// Faults tells of page faults with their addresses. It is for one goroutine.
type Faults struct {
	session  *perfevent.Session
	attr     perfevent.Attr
	points   []tracepoint // of each event; none: software events
	userOnly bool
	other    func(*perfevent.Record)
}

// faultSample is what a sample of a fault tells.
const faultSample = perfevent.SampleIP | perfevent.SampleTID | perfevent.SampleTime | perfevent.SampleAddr | perfevent.SampleCPU

// session is what all kinds of events have in common.
func (o *Options) session() perfevent.Options {
	return perfevent.Options{PID: o.PID, Pages: o.Pages, Children: o.Children, OnExec: o.OnExec}
}

// OpenFaults begins to tell of page faults. Without the right to see those that the kernel takes on the process's
// behalf, such as read(2) into new memory, it leaves them out: UserOnly tells.
func OpenFaults(o Options) (*Faults, error) {
	if o.Ops && o.Kind == AllFaults {
		if f, err := openTracepoints(o); err == nil {
			return f, nil
		}
	}
	config := map[Kind]uint64{AllFaults: perfevent.SWPageFaults, MinorFaults: perfevent.SWPageFaultsMin, MajorFaults: perfevent.SWPageFaultsMaj}[o.Kind]
	// With SamplePeriod the kernel would tell every fault of a software event, whatever the period.
	f := &Faults{attr: perfevent.Attr{Type: perfevent.TypeSoftware, Config: config, Period: max(o.Period, 1), SampleType: faultSample}}
	options := o.session()
	options.Events = []perfevent.EventSpec{{Name: "page-faults", Attr: f.attr}}
	var err error
	if f.session, err = perfevent.Open(options); !errors.Is(err, perfevent.ErrRing) && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)) {
		options.UserOnly, f.userOnly = true, true
		f.session, err = perfevent.Open(options)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Ops tells whether faults say what they were for.
func (f *Faults) Ops() bool { return len(f.points) > 0 }

// UserOnly tells whether faults that the kernel took on the process's behalf are missing.
func (f *Faults) UserOnly() bool { return f.userOnly }

// Others hands the records that are no samples, of processes and what they map, to a function from now on, which
// Drain calls.
func (f *Faults) Others(each func(*perfevent.Record)) { f.other = each }

// Drain hands on the faults that are in the rings now. What a fault was for is told only with [Options.Ops]. It
// returns each's first error, and how many faults there were.
func (f *Faults) Drain(each func(memtrace.Access) error) (int, error) {
	return f.session.Drain(func(r *perfevent.Record) error {
		if r.Type != perfevent.RecordSample {
			if f.other != nil {
				f.other(r)
			}
			return nil
		}
		a := r.Sample.Access(f.attr.SampleType, f.attr.Period, memtrace.CollectorFault)
		if f.Ops() && !f.points[r.Event].access(r.Sample.Raw, &a) {
			return nil
		}
		return each(a)
	})
}

// Wait waits until a ring is a quarter full, or for a time; perfevent.ErrGone says that the process has ended.
func (f *Faults) Wait(atMost time.Duration) (bool, error) { return f.session.Wait(atMost) }

// Stats is what was told until now, and what was lost.
func (f *Faults) Stats() perfevent.Stats { return f.session.Stats() }

// Stop ends the telling; what is in the rings can still be drained.
func (f *Faults) Stop() error { return f.session.Disable() }

// Close ends it and gives the rings back.
func (f *Faults) Close() error { return f.session.Close() }
