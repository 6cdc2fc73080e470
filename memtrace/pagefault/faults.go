package pagefault

import (
	"errors"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Options configure Faults. The zero value samples all faults of the calling process.
type Options struct {
	PID      int  // 0: the calling process
	Pages    int  // size of each CPU's ring, a power of two; 0 = 64, room for about 4,000 faults
	Children bool // sample child processes too
	// Ops asks whether each fault was a read or a write. This needs the kernel's tracepoints, which only x86 has, and
	// permission to read them; without them it is omitted, as [Faults.Ops] reports.
	Ops bool
}

// Faults samples page faults with their addresses. It is for one goroutine.
type Faults struct {
	session  *perfevent.Session
	attr     perfevent.Attr
	points   []tracepoint // of each event; none: software events
	userOnly bool
	other    func(*perfevent.Record)
}

// faultSample are the fields of a fault sample.
const faultSample = perfevent.SampleIP | perfevent.SampleTID | perfevent.SampleTime | perfevent.SampleAddr |
	perfevent.SampleCPU

// OpenFaults begins to sample page faults. Without permission to see those that the kernel takes on the process's
// behalf, such as read(2) into new memory, it omits them, as UserOnly reports.
func OpenFaults(o Options) (*Faults, error) {
	if o.Ops {
		if f, err := openTracepoints(o); err == nil {
			return f, nil
		}
	}
	f := &Faults{attr: perfevent.Attr{Type: perfevent.TypeSoftware, Config: perfevent.SWPageFaults, Period: 1,
		SampleType: faultSample}}
	options := perfevent.Options{PID: o.PID, Pages: o.Pages, Children: o.Children}
	options.Events = []perfevent.EventSpec{{Name: "page-faults", Attr: f.attr}}
	var err error
	if f.session, err = perfevent.Open(options); !errors.Is(err, perfevent.ErrRing) &&
		(errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)) {
		options.UserOnly, f.userOnly = true, true
		f.session, err = perfevent.Open(options)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Ops reports whether faults are known to be reads or writes.
func (f *Faults) Ops() bool { return len(f.points) > 0 }

// UserOnly reports whether the faults that the kernel took on the process's behalf are missing.
func (f *Faults) UserOnly() bool { return f.userOnly }

// Others sets the function to which Drain passes the records that are not samples: processes and their mappings.
func (f *Faults) Others(each func(*perfevent.Record)) { f.other = each }

// Drain passes the faults in the rings to each; their Op is known only with [Options.Ops]. It returns each's first
// error and the number of faults.
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

// Wait waits until a ring is a quarter full, or for a time. perfevent.ErrGone: the process has ended.
func (f *Faults) Wait(atMost time.Duration) (bool, error) { return f.session.Wait(atMost) }

// Stats counts what was read so far, and what was lost.
func (f *Faults) Stats() perfevent.Stats { return f.session.Stats() }

// Stop ends the sampling. What is in the rings can still be drained.
func (f *Faults) Stop() error { return f.session.Disable() }

// Close stops the sampling and frees the rings.
func (f *Faults) Close() error { return f.session.Close() }
