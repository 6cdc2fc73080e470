package filemap

import (
	"errors"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// Options say what a Collector looks at, and where its lines go.
type Options struct {
	Target bpf.Target
	// Line is handed the lines of executions as they are complete. Nil: without a tap; each Snapshot is the line of
	// an interval.
	Line func(*resource.WaitLine) error
	// Fault is handed each event; nil: not asked for.
	Fault func(*resource.FaultLine) error
}

// Collector records what a process waits for on files. It is a bpf.Follower.
type Collector struct {
	source   *Source
	recorder *Recorder
	closed   bool
	err      error
}

// Open begins to record. Its errors wrap bpf.ErrMissing where the machine or the rights do not suffice.
func Open(o Options) (*Collector, error) {
	c := &Collector{recorder: NewRecorder(RecorderOptions{
		Files: NewFiles(), Line: o.Line, Fault: o.Fault, BeginNS: bpf.MonoNS(), Intervals: o.Line == nil,
	})}
	var err error
	c.source, err = OpenSource(SourceOptions{Target: o.Target, Take: c.recorder.Take, Upto: c.recorder.Upto})
	if err != nil {
		return nil, err
	}
	if c.Missing()["on_page"]+c.Missing()["on_page_plain"] != "" {
		c.recorder.byMapping()
	}
	return c, nil
}

// Recorder returns the recorder to which a Follower reports executions.
func (c *Collector) Recorder() *Recorder { return c.recorder }

// AddPID adds a process to a target that is restricted to processes.
func (c *Collector) AddPID(pid int) error { return c.source.AddPID(pid) }

// AddPath adds a file of the run: reads of it are recorded whoever issues them.
func (c *Collector) AddPath(path string) error {
	key, err := c.recorder.AddPath(path)
	if err != nil {
		return err
	}
	return c.source.AddFile(key)
}

// Snapshot returns the line of the time since the one before. A collector whose lines are those of executions
// returns none.
func (c *Collector) Snapshot(time.Time) (any, error) {
	if !c.recorder.o.Intervals {
		return []resource.WaitLine{}, nil
	}
	l := c.recorder.Interval(bpf.MonoNS())
	l.Origin = c.source.Origin()
	return []*resource.WaitLine{l}, nil
}

// Programs returns the cost of the programs.
func (c *Collector) Programs() ([]bpf.ProgramStat, error) { return c.source.Programs() }

// Origin says which programs run, in the words of resource.
func (c *Collector) Origin() string { return c.source.Origin() }

// Lost returns what was lost so far.
func (c *Collector) Lost() (Lost, error) { return c.source.Lost() }

// Close ends the recording: it writes the remaining lines and the total. It may be called twice.
func (c *Collector) Close() error {
	if c.closed {
		return c.err
	}
	c.closed = true
	c.source.Stop()
	lost, err := c.source.Lost()
	c.err = errors.Join(err, c.recorder.Close(bpf.MonoNS(), func(l *resource.WaitLine, t Totals) {
		l.Origin, l.Lost, l.Missing = c.source.Origin(), lost.byCause(t), c.Missing()
	}), c.source.Close())
	return c.err
}

// byCause returns the losses for the line of the total; nil if there are none.
func (l Lost) byCause(t Totals) map[string]uint64 {
	all := map[string]uint64{
		"ring_full": l.Ring, "threads_full": l.Threads, "requests_full": l.Requests, "faults_open": l.Open,
		"faults_unknown":   l.Unknown,
		"graphs_told_late": t.LateGraphs, "strays": t.Strays, "request_ends_unseen": t.Unseen,
	}
	for cause, n := range all {
		if n == 0 {
			delete(all, cause)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// Missing names what is not recorded here, with the reason; nil: nothing.
func (c *Collector) Missing() map[string]string {
	all := map[string]string{}
	for name, err := range c.source.Absent() {
		all[name] = err.Error()
	}
	if c.source.Origin() == resource.OriginPlain {
		all["call_waits"], all["block_requests"] = "need a kernel with BTF", "need a kernel with BTF"
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
