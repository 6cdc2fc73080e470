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
	*source
	recorder *Recorder
	closed   bool
	closing  error
}

// Open begins to record. Its errors wrap bpf.ErrMissing where the machine or the rights do not suffice.
func Open(o Options) (*Collector, error) {
	c := &Collector{recorder: newRecorder(recorderOptions{
		Files: newFiles(), Line: o.Line, Fault: o.Fault, BeginNS: bpf.MonoNS(), Intervals: o.Line == nil,
	})}
	var err error
	c.source, err = openSource(sourceOptions{Target: o.Target, Take: c.recorder.Take, Upto: c.recorder.Upto})
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

// AddPath adds a file of the run: reads of it are recorded whoever issues them.
func (c *Collector) AddPath(path string) error {
	key, err := c.recorder.AddPath(path)
	if err != nil {
		return err
	}
	return c.addFile(key)
}

// Snapshot returns the line of the time since the one before. A collector whose lines are those of executions
// returns none.
func (c *Collector) Snapshot(time.Time) (any, error) {
	if !c.recorder.o.Intervals {
		return []resource.WaitLine{}, nil
	}
	l := c.recorder.interval(bpf.MonoNS())
	l.Origin = c.Origin()
	return []*resource.WaitLine{l}, nil
}

// Close ends the recording: it writes the remaining lines and the total. It may be called twice.
func (c *Collector) Close() error {
	if c.closed {
		return c.closing
	}
	c.closed = true
	c.Stop()
	lost, err := c.Lost()
	c.closing = errors.Join(err, c.recorder.Close(bpf.MonoNS(), func(l *resource.WaitLine, t Totals) {
		l.Origin, l.Lost, l.Missing = c.Origin(), lost.byCause(t), c.Missing()
	}), c.source.Close())
	return c.closing
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
	for name, err := range c.absent() {
		all[name] = err.Error()
	}
	if c.Origin() == resource.OriginPlain {
		all["call_waits"], all["block_requests"] = "need a kernel with BTF", "need a kernel with BTF"
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
