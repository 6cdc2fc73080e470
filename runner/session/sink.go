//go:build linux

package session

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/rundir"
)

// StreamName is the file of captured tensors in a run directory.
const StreamName = rundir.StreamName

// sink makes the run directory with the first context that the tap reports, passes reports on to the recorders, and
// keeps the run within its bounds. It is for the goroutine that reads the tap.
type sink struct {
	ggmlhooks.Sink // the recorders, while they record
	run            *run
	counter        *counter
	others         *recorders
	files          *files
	output         *output
	before         *before // nil: the run is new
	checkpoints    checkpoints
	steering       *steering
	tee            tee
	judge          judge
	stall          stall
}

func newSink(r *run, b budget, before *before, consumer *feed) *sink {
	s := &sink{
		run: r, counter: &counter{run: r}, others: newRecorders(r, b.heap/2), before: before,
		judge: judge{run: r}, stall: stall{region: r.region},
	}
	s.files = newFiles(r, s.counter, s.others, consumer, b.buffers)
	s.tee.Assembler = ggmlhooks.NewAssembler(0)
	s.Sink = &s.tee
	if r.o.Tap.Records(config.Regions) {
		s.tee.onEarly = s.others.maps.keep
	}
	return s
}

// Context notes a context of the model; the first one makes the run directory.
func (s *sink) Context(c *ggmlhooks.Context) error {
	s.run.addContext(c)
	if s.counter.halted != nil {
		return s.Sink.Context(c)
	}
	if s.counter.recorder == nil {
		if err := s.open(); err != nil {
			return explain(err, s.run.o.Tap)
		}
	} else if err := s.run.dir.WriteJSON(rundir.MetadataName, s.run.beginning()); err != nil { // a context more
		return explain(err, s.run.o.Tap)
	}
	if err := s.tee.Context(c); err != nil {
		return err
	}
	return s.before.catchUp(s.counter.recorder, s.tee.Joiner)
}

// open makes the run directory, or opens that of the resumed run, and the writers into it.
func (s *sink) open() (err error) {
	if s.before != nil {
		err = s.before.reopen(s.run)
	} else {
		err = s.run.create()
	}
	if err != nil {
		return err
	}
	s.output = &output{files: s.files, requests: map[requestKey]ggmlhooks.RequestBegin{}}
	var to capture.Stream = s.output
	if s.before != nil {
		if err := s.before.open(s.files, s.output); err != nil {
			return err
		}
		to = s.before.replay
	} else if err := s.files.open(); err != nil {
		return err
	}
	if err := s.checkpoints.begin(s.run, s.files.current); err != nil {
		return err
	}
	s.counter.follow(cmp.Or(s.run.region.PID(), s.run.pid))
	s.counter.recorder = capture.NewRecorder(capture.Options{
		Selection: s.run.o.Tap.Selection(), Selected: s.run.selected, Stream: to, Tokens: tokenOutput{s.files,
			&s.checkpoints, s.before},
		UnixOffset: s.run.unixOffset(),
	})
	others, err := s.others.open()
	if err != nil {
		return err
	}
	s.counter.begun = true
	all := append([]io.Closer{s.counter.recorder}, others...)
	if err := s.tee.open(s.run.region.PoolBytes(), all...); err != nil {
		return err
	}
	s.run.upload.begin(s.run.dir)
	return s.files.room.checkFree(0)
}

// Graph passes a description on, and judges the selection by it.
func (s *sink) Graph(g *ggmlhooks.Graph) error {
	if s.counter.halted != nil {
		return s.Sink.Graph(g)
	}
	if s.counter.recorder == nil {
		return fmt.Errorf("%w: a graph without a context", ggmlhooks.ErrDesync)
	}
	if err := s.judge.graph(g); err != nil {
		return err
	}
	if err := s.tee.Graph(g); err != nil || s.counter.halted != nil {
		return err
	}
	use := s.counter.recorder.Use()
	if len(use.Points) == len(s.run.points) && len(use.Attached) == len(s.run.attached) {
		return nil
	}
	// A kill, or a reader of the live run, must not miss which tensors are which points, and what maps are made of.
	s.run.points, s.run.attached = use.Points, use.Attached
	if err := s.run.dir.WriteJSON(rundir.MetadataName, s.run.beginning()); err != nil {
		return explain(err, s.run.o.Tap)
	}
	return nil
}

// ExecEnd ends a micro-batch, the place where a segment may end.
func (s *sink) ExecEnd(e ggmlhooks.ExecEnd) error {
	if err := s.Sink.ExecEnd(e); err != nil {
		return err
	}
	if s.counter.recorder == nil || s.counter.halted != nil {
		return nil
	}
	s.counter.watch()
	if s.before.caughtUp() {
		if err := s.checkpoints.writeIfDue(s.files.current.stream, len(s.steering.changes) > 0); err != nil {
			return err
		}
	}
	if err := s.files.room.tick(); err != nil {
		return err
	}
	return s.files.rotate(s.output.repeatRequests)
}

// idle is what is done when nothing has come for a while, or between two looks: held packets are written if the
// model waits for their slots, a segment may end by its time, and the disk is looked at.
func (s *sink) idle() error {
	if err := s.others.idle(s.counter.halted != nil); err != nil {
		return err
	}
	if s.counter.recorder == nil || s.counter.halted != nil {
		return nil
	}
	if s.stall.lasts() && !s.others.inStep() {
		if err := s.tee.Relieve(); err != nil {
			return err
		}
	}
	if err := s.files.feed.report(s.run.o.Tap.OnFailure); err != nil {
		return err
	}
	if err := s.steering.serve(); err != nil {
		return err
	}
	if err := s.files.reserve.grow(reserveFor(s.files.sealBytes())); err != nil {
		return err
	}
	if err := s.files.room.tick(); err != nil {
		return err
	}
	return s.files.rotate(s.output.repeatRequests)
}

// halt ends writing for good: that of the collectors beside the tap, too. The tap continues reporting what the model
// computes and copies nothing more, so that all that is missing is counted; what was recorded is made whole. Where
// the tap's reports cannot be read any more, the tap is informed that nothing is recorded, and the program continues as
// without it.
func (s *sink) halt(err error) {
	s.counter.halt(err)
	if s.run.dir != nil && s.before.caughtUp() {
		m := s.run.beginning()
		m.Stopped = s.counter.stopped(nil)
		// For who looks while the program continues. Where a full disk has no room for it, the end says it.
		_ = s.run.dir.WriteJSON(rundir.MetadataName, m)
	}
	s.others.stopCollectors()
	s.Sink = &after{}
	if s.counter.recorder == nil {
		return
	}
	if !s.counter.blind() {
		s.Sink = &s.tee
	}
	refused := s.tee.Refuse()
	s.files.close(!s.counter.halted.limited() || refused != nil) // finish tries again, should it fail
}

// stall notices that the model waits for slots and none will come back, since all that it waits for are held. The bound
// on what is held lets that happen only where the slots that are left lie apart.
type stall struct {
	region *collect.Region
	moved  uint64    // what had moved through the shared memory
	at     time.Time // when it last did
}

// stallTime is how long a model waits for slots, and nothing moves, before what is held back is taken for the reason. A
// model that waits because pages are not touched yet, or for a collector that had no core, continues by itself: what
// is written must not depend on that.
const stallTime = time.Second

// lasts reports whether nothing has moved for so long.
func (s *stall) lasts() bool {
	moved, waits := s.region.Moved()
	now := time.Now()
	if !waits || moved != s.moved || s.at.IsZero() {
		s.moved, s.at = moved, now
		return false
	}
	return now.Sub(s.at) >= stallTime
}
