//go:build linux

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/otlp"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// Options says what to run and what to record of it.
type Options struct {
	Tap *config.Tap // resolved
	// Command is the model's process, not started. Its environment and files are completed.
	Command *exec.Cmd
	// Backends is the folder of ggml's backends that the process shall load; empty: as it does by itself.
	Backends string
	// Echo is the command line as the user typed it.
	Echo []string
	// Llama describes the llama.cpp that runs, for the metadata.
	Llama LlamaInfo
	// Version is llamatap's.
	Version string
	// Repeat is what a checkpoint needs to know, where the tap's settings ask for checkpoints.
	Repeat Repeat
	// Resume is the checkpoint of the run to resume; nil: a new one.
	Resume *rundir.Checkpoint
	// Begin, unless it is nil, says where the program of the run to resume begins, by what is kept of it, and
	// lets Command begin there. It is called before the process is started. Without it that is the beginning.
	Begin func(kept *stream.Kept) (Start, error)
	// StateFolder is where the program of a new run keeps its state; it is moved into the run directory. "": it
	// keeps none.
	StateFolder string
	// NoLogits ends graphs of tokens before their logits are computed: the program reads none.
	NoLogits bool
	// Results is the file that names the prompts of a dataset, see export.LiveOptions; "": none.
	Results string
	// Summary is where the short summary goes; nil: nowhere.
	Summary io.Writer
}

// LlamaInfo describes a llama.cpp.
type LlamaInfo struct {
	Version string // that this binary was built for
	Prefix  string // where the libraries lie that the command uses; empty when it is not known
}

// Result says how a run ended.
type Result struct {
	Exit    collect.Exit
	Dir     string // the run directory, "" if none was made
	Summary Summary
	// Incomplete is true if the recording ended before the program did and nobody had asked for that, or could not
	// be sealed, or samples are missing. What was the cause is printed to stderr.
	Incomplete bool
	// Lossy is true if the account in Summary lacks something that nobody had asked to leave out.
	Lossy bool
}

// ErrRecording occurs when the recording failed and the program had to end with it. What was recorded stays in the
// run directory, sealed where that could be done, and marked as stopped.
var ErrRecording = errors.New("the recording failed")

// ErrSelection occurs when the selection names tensors or layers that the model does not have. Nothing is recorded
// then.
var ErrSelection = errors.New("nothing to record")

// session is a recording and the process that it records.
type session struct {
	sink    *sink
	report  report
	process *collect.Process
	reader  *collect.Reader
	warned  bool // the user knows that recording ended and the program has not
}

// Run runs the model's process to its end and records it. A context that ends stops the process. The Result is
// valid with an error too, as far as the process was started.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := checkOut(o.Tap.Out); err != nil {
		return Result{}, err
	}
	if err := (&room{tap: o.Tap, statfs: unix.Statfs}).check(); err != nil {
		return Result{}, err
	}
	upload, err := newUploader(ctx, o.Tap)
	if err != nil {
		return Result{}, err
	}
	budget, err := split(int64(o.Tap.Memory))
	if err != nil {
		return Result{}, err
	}
	before, err := examine(&o)
	if err != nil {
		return Result{}, err
	}
	defer before.close()
	overflow := collect.Block
	if o.Tap.Overflow == config.OverflowDrop {
		overflow = collect.Drop
	}
	start := collect.Wish{
		Selection: before.selection(o.Tap), MapsAlone: o.Tap.AttentionAlone(),
		Off: o.Tap.StartOff || !o.Tap.Records(config.Activations), Machine: machineOf(o.Tap.ResourceLevel, o.Tap),
	}
	region, err := collect.NewRegion(collect.Options{
		Start: start, Overflow: overflow, MemoryBytes: budget.shared, Backends: o.Backends,
		StopOnFailure: o.Tap.OnFailure == config.FailureStop, Cold: o.Tap.Cold,
		InStep: o.Tap.SamplesWith(config.SamplePages), Turns: turns(),
		Judge: !start.Off || o.Tap.Steer.File != "", Keep: (*int64)(o.Tap.DeviceMemory),
		NoLogits: o.NoLogits,
		Steer:    o.Tap.Records(config.Steering),
	})
	if err != nil {
		return Result{}, err
	}
	defer region.Close()
	debug.SetMemoryLimit(budget.heap)
	r := newRun(o, region)
	r.upload = upload
	if o.Tap.Records(config.Requests) {
		if r.export, err = otlp.Lookup("--tap-otlp", o.Tap.OTLP, nil); err != nil {
			return Result{}, err
		}
	}
	defer r.dropStates()
	consumer, err := newFeed(o.Tap.Sink)
	if err != nil {
		return Result{}, err
	}
	defer consumer.close()
	s := &session{sink: newSink(r, budget, before, consumer)}
	s.report = report{run: r, counter: s.sink.counter, others: s.sink.others, files: s.sink.files, before: before}
	s.sink.steering = newSteering(s.sink, &s.report, start)
	s.report.steering = s.sink.steering
	if s.sink.judge.vector, err = s.sink.steering.vectors.begin(); err != nil {
		return Result{}, err
	}
	s.reader = collect.NewReader(region, before.renumber(s.sink.steering))
	if s.process, err = collect.Start(o.Command, region, s.sink.others.ready()); err != nil {
		return Result{}, errors.Join(err, s.sink.others.Close())
	}
	r.pid = s.process.PID()
	s.sink.counter.follow(r.pid)
	s.sink.others.start()
	if o.Tap.Attention == ggmlhooks.AttentionExact {
		fmt.Fprintln(present.Err, "llamatap: --tap-attention exact turns flash attention off: the model's numbers "+
			"differ from those of a run with it")
	}
	go func() {
		<-s.process.Exited()
		consumer.limitWaits()
	}()
	s.sink.steering.watchSignals()
	defer s.sink.steering.close()
	if err := s.pump(ctx); errors.Is(err, errStopped) {
		s.report.early = true
	} else if err != nil {
		s.sink.steering.close() // nothing can be changed any more
		if errors.Is(err, ErrSelection) {
			s.process.Stop(unix.SIGKILL) // before halt lets the model go, which waits for its first graph to be judged
		}
		s.sink.halt(err)
		if !s.sink.counter.halted.limited() && s.endsProgram(err) {
			defer s.stopProgram()()
		} else {
			s.warned = true
			fmt.Fprintf(present.Err, "llamatap: %v; the program continues unrecorded\n", explain(err, o.Tap))
		}
		s.pump(ctx) // what still comes is counted; nothing that fails now is news
	}
	s.sink.steering.close()
	return s.end()
}

// end seals the run. The program has ended, or continues without the tap: then it is waited for.
func (s *session) end() (Result, error) {
	o, exit := &s.sink.run.o, collect.Exit{}
	if s.report.early {
		s.sink.run.region.Stop()
	} else if exit = s.process.Exit(); exit.Hung {
		fmt.Fprintln(present.Err, "llamatap: "+hungReason)
	}
	sealing := s.finish(exit)
	s.sink.files.feed.report(o.Tap.OnFailure) // it may have gone at the very end
	result := s.report.result(sealing)
	err := s.failure(sealing)
	result.Exit = s.process.Exit()
	if err == nil && o.Summary != nil && (result.Dir != "" || s.sink.counter.halted == nil) {
		result.Summary.Write(o.Summary, result.Dir)
		if s.report.early {
			fmt.Fprintln(o.Summary, "          stopped   by a command, before the program ended")
		}
		s.report.remarks(o.Summary, result.Exit)
	}
	if copied, failed := s.sink.run.upload.end(result.Dir != "" && sealing == nil); failed != nil {
		return result, errors.Join(err, failed)
	} else if copied != "" && o.Summary != nil {
		fmt.Fprintf(o.Summary, "          copied    to %s\n", copied)
	}
	return result, err
}

// hungReason describes a program that [collect.Process] had to kill.
const hungReason = "the program hung in its handler of Ctrl-C, and was killed 2 s after the second one"

// failure is what Run reports. Where the program was to continue without its recording, it is printed, once, and is no
// failure of the program.
func (s *session) failure(sealing error) error {
	err := sealing
	if halted := s.sink.counter.halted; halted != nil && !halted.limited() {
		err = explain(halted.err, s.sink.run.o.Tap)
		if sealing == nil && s.sink.run.dir != nil {
			err = fmt.Errorf("%w; what was recorded is in %s", err, s.sink.run.dir.Path())
		}
		if sealing != nil {
			err = fmt.Errorf("%w; %w", err, sealing)
		}
	}
	if err == nil || s.endsProgram(err) {
		return err
	}
	if s.warned {
		err = sealing
	}
	if err != nil {
		fmt.Fprintf(present.Err, "llamatap: %v\n", err)
	}
	return nil
}

// stopProgram ends the model's process after a failure: at once when nothing was recorded, for then the request
// itself was wrong, else giving it five seconds to end by itself.
func (s *session) stopProgram() (stop func()) {
	if s.sink.files.written().Packets == 0 {
		s.process.Stop(unix.SIGKILL)
		return func() {}
	}
	s.process.Stop(unix.SIGTERM)
	kill := time.AfterFunc(5*time.Second, func() { s.process.Stop(unix.SIGKILL) })
	return func() { kill.Stop() }
}

// pump reads until the process is gone or the recording fails.
func (s *session) pump(ctx context.Context) error {
	err := s.process.Pump(ctx, s.reader, collect.Idle{Do: s.sink.idle, Often: s.sink.others.needsFrequentIdle()})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		s.process.Stop(unix.SIGTERM)
		<-s.process.Exited()
		_, err = s.reader.Drain()
	}
	return err
}

// budget says how --tap-memory is shared out.
type budget struct {
	shared  int64 // queue and slots
	buffers int64 // packed packets that wait to be written
	heap    int64 // soft limit of Go's heap
}

// leastMemory is what a queue, a useful pool and the packets behind them need.
const leastMemory = 2 * collect.MinMemoryBytes

// split keeps a quarter, at most 40 MiB, for packed packets, and as much again for the collector itself.
func split(memory int64) (budget, error) {
	if memory < leastMemory {
		return budget{}, fmt.Errorf("%w: --tap-memory allows %d bytes; give it at least %dM", collect.ErrMemory, memory,
			leastMemory>>20)
	}
	b := budget{buffers: min(memory/4, 40<<20)}
	b.heap = b.buffers + 24<<20
	b.shared = memory - b.buffers - min(memory/4, 48<<20)
	return b, nil
}

// checkOut refuses an output folder that cannot be written before the model is loaded.
func checkOut(out string) error {
	if err := os.MkdirAll(out, 0o700); err != nil {
		return fmt.Errorf("output folder %s: %w; choose another with --tap-out", out, cli.Bare(err))
	}
	if err := unix.Access(out, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("output folder %s cannot be written: %w; choose another with --tap-out", out, err)
	}
	return nil
}

// explain makes an error of the disk one that says what to do.
func explain(err error, tap *config.Tap) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		path, flag, at := tap.Out, "--tap-out", (*os.PathError)(nil)
		if dataset := tap.Dataset.Dir; dataset != "" && errors.As(err, &at) && strings.HasPrefix(at.Path, dataset) {
			path, flag = dataset, "--tap-dataset"
		}
		return fmt.Errorf("%w: the disk of %s is full; free room there, choose another folder with %s, or "+
			"capture less (--tap-layer, --tap-token)", ErrRecording, path, flag)
	}
	return err
}

// turns is what config.TurnsVariable holds, 0 where it is not set.
func turns() uint32 {
	n, _ := strconv.ParseUint(os.Getenv(config.TurnsVariable), 10, 16)
	return uint32(n)
}

// endsProgram reports whether the program ends with the recording: where the request itself was wrong, or a run
// cannot be resumed, and where the user wants it.
func (s *session) endsProgram(err error) bool {
	return errors.Is(err, ErrSelection) || errors.Is(err, ErrRepeat) ||
		s.sink.before != nil && s.sink.files.current == nil || s.sink.run.o.Tap.OnFailure == config.FailureStop
}

// close ends the recording: what is still open is ended or counted, and every file is closed.
func (s *sink) close() error {
	count := s.counter
	var err error
	if s.files.current != nil && s.before.caughtUp() && count.halted == nil {
		// Before what a program that was killed has left half done is ended: a resumed run does it as a whole.
		if err := s.checkpoints.last(s.files.current.stream, len(s.steering.changes) > 0); err != nil {
			count.halt(err) // the run says why it ended, and is sealed
		}
	}
	if count.taken != nil {
		count.taken.stop()
	}
	if count.recorder != nil && count.halted == nil {
		if err := s.tee.Finish(); err != nil {
			s.halt(err)
		}
	}
	if count.recorder != nil && count.halted != nil {
		s.tee.Finish() // nothing is written: what is still open is counted
	}
	if err := s.files.live.close(count.halted != nil); err != nil && count.halted == nil {
		count.halt(err)
	}
	if s.files.current != nil {
		// A run that has not come again as far as it was is what it was: its tokens are those of its stream.
		err = errors.Join(err, s.files.close(count.halted != nil && !count.halted.limited() || !s.before.caughtUp()))
	}
	err = errors.Join(err, s.files.series.wait())
	if err := errors.Join(s.tee.Close(), s.others.Close(), s.others.closeTable()); err != nil && count.halted == nil {
		count.halt(err) // the run says why it ended
	}
	return err
}

// finish ends the recording and seals it. A directory in which nothing could be recorded is removed.
func (s *session) finish(exit collect.Exit) error {
	r, sink, count := s.sink.run, s.sink, s.sink.counter
	sink.others.stopCollectors()
	sink.others.samples.stop()
	if r.dir == nil {
		return sink.others.Close()
	}
	if count.halted == nil && !sink.before.caughtUp() && !s.report.early && exit.Status == 0 && exit.Signal == 0 {
		count.halt(fmt.Errorf("%w: it ended by itself before it had come as far; resume it with the arguments that it "+
			"had, or begin anew", ErrRepeat))
	}
	err, path := sink.close(), r.dir.Path()
	s.report.ended = true
	if sink.files.current == nil && sink.before != nil {
		return err // its files could not be opened: the run stays what it was
	}
	if err == nil && sink.before != nil && sink.before.caughtUp() {
		err = dropAside(path)
	}
	if failure := sink.files.series.failure; failure != nil && count.halted == nil {
		count.halt(failure)
	}
	if sink.files.current == nil ||
		count.halted != nil && sink.files.written().Packets == 0 && sink.others.empty() && sink.files.live == nil {
		os.RemoveAll(path)
		os.Remove(filepath.Dir(path)) // the model's folder, if that was its only run
		r.dir = nil
		return nil
	}
	err = errors.Join(err, sink.steering.log.close())
	whole := count.halted == nil // there is nothing to resume
	if err == nil {
		err = sink.files.seal(func() rundir.Metadata {
			m := s.report.metadata(s.process, exit)
			whole = whole || m.Stopped != nil && m.Stopped.Whole
			return m
		})
	}
	if err == nil {
		interrupted := exit.Signal != 0 || exit.Status >= 128 ||
			slices.ContainsFunc(sink.steering.changes, func(c rundir.Change) bool {
				return c.Command != control.CommandFlush && c.Level == "" && c.Steering == 0 // of what is captured
			})
		err = sink.files.live.finish(r.dir.Path(), count.halted == nil && !interrupted)
	}
	if err == nil && whole && sink.before.caughtUp() && !s.report.early && exit.Status == 0 &&
		exit.Signal == 0 {
		sink.checkpoints.drop()
	}
	if err != nil {
		explained := explain(err, r.o.Tap)
		if count.halted == nil && r.vanished() {
			count.halt(err)
			return fmt.Errorf("%w; nothing is left: the run directory %s was removed while it was recorded", explained,
				path)
		}
		return fmt.Errorf("%w; what was recorded is in %s, unsealed", explained, path)
	}
	return nil
}
