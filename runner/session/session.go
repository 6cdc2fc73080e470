//go:build linux

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/terminal"
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
	// Incomplete says that the recording ended before the program did and nobody had asked for that, or could not
	// be sealed, or samples are missing. What was the cause is printed to stderr.
	Incomplete bool
	// Lossy says that the account in Summary lacks something that nobody had asked to leave out.
	Lossy bool
}

// ErrRecording occurs when the recording failed and the program had to end with it. What was recorded stays in the
// run directory, sealed where that could be done, and marked as stopped.
var ErrRecording = errors.New("the recording failed")

// ErrSelection occurs when the selection names tensors or layers that the model does not have. Nothing is recorded
// then.
var ErrSelection = errors.New("nothing to record")

// Run runs the model's process to its end and records it. A context that ends stops the process. The Result is
// valid with an error too, as far as the process was started.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := checkOut(o.Tap.Out); err != nil {
		return Result{}, err
	}
	if err := (&room{tap: o.Tap, statfs: unix.Statfs}).check(); err != nil {
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
	start := startWish(o.Tap, before)
	region, err := collect.NewRegion(collect.Options{
		Start: start, Overflow: overflow(o.Tap.Overflow), MemoryBytes: budget.shared, Backends: o.Backends,
		StopOnFailure: o.Tap.OnFailure == config.FailureStop, Cold: o.Tap.Cold, InStep: o.Tap.SamplesWith(config.SamplePages), Turns: turns(),
		Judge: !start.Off,
	})
	if err != nil {
		return Result{}, err
	}
	defer region.Close()
	debug.SetMemoryLimit(budget.heap)
	s := newSink(o, region, budget, start)
	s.resumeFrom(before)
	defer s.dropStates()
	if s.feed, err = newFeed(o.Tap.Sink); err != nil {
		return Result{}, err
	}
	defer s.feed.close()
	s.host = newHostSide(o) // before the program: what its start costs is seen
	s.samples = newSamples(o)
	process, err := collect.Start(o.Command, region, s.ready())
	if err != nil {
		return Result{}, errors.Join(err, s.host.Close(), s.samples.Close())
	}
	s.host.start()
	s.samples.start(region.PID)
	s.monitor = startMonitor(o.Tap, func() int { return cmp.Or(region.PID(), process.PID()) })
	if o.Tap.Attention == ggmlhooks.AttentionExact {
		fmt.Fprintln(terminal.Err, "llamatap: --tap-attention exact turns flash attention off: the model's numbers differ from those of a run with it")
	}
	go func() {
		<-process.Exited()
		s.feed.hurry()
	}()
	s.steering.pid = process.PID()
	s.steering.watchSignals()
	defer s.steering.close()
	if err := s.pump(ctx, process); errors.Is(err, errStopped) {
		return s.sealEarly(process)
	} else if err != nil {
		s.steering.close() // nothing can be changed any more
		if errors.Is(err, ErrSelection) {
			process.Stop(unix.SIGKILL) // before halt lets the model go, which waits for its first graph to be judged
		}
		s.halt(err)
		if !s.halted.limited() && s.endsProgram(err) {
			defer s.stopProgram(process)()
		} else {
			s.warn()
		}
		s.pump(ctx, process) // what still comes is counted; nothing that fails now is news
	}
	s.steering.close()
	exit := process.Exit()
	if exit.Hung {
		fmt.Fprintln(terminal.Err, "llamatap: "+hungReason)
	}
	sealing := s.finish(process, exit)
	s.consumerLost() // it may have gone at the very end
	result := Result{Exit: exit, Dir: s.path(), Summary: s.summary(), Incomplete: s.incomplete(sealing)}
	result.Lossy = s.lossy(&result.Summary.Account)
	if err := s.failure(sealing); err != nil {
		return result, err
	}
	if o.Summary != nil && (result.Dir != "" || s.halted == nil) {
		result.Summary.Write(o.Summary, result.Dir)
		s.remarks(o.Summary, exit)
	}
	return result, nil
}

// ready lets whoever watches the model's process begin before its first instruction; nil: it need not be held.
func (s *sink) ready() func(pid int) error {
	host := s.host.ready()
	if s.samples == nil {
		return host
	}
	return func(pid int) error {
		if host != nil {
			if err := host(pid); err != nil {
				return err
			}
		}
		return s.samples.ready(pid)
	}
}

// sealEarly ends a recording that was stopped by a command: the run is sealed, and the program continues without
// the tap.
func (s *sink) sealEarly(process *collect.Process) (Result, error) {
	s.region.Stop()
	s.early = true
	sealing := s.finish(process, collect.Exit{})
	err := s.failure(sealing)
	result := Result{Dir: s.path(), Summary: s.summary(), Incomplete: s.incomplete(sealing)}
	result.Lossy = s.lossy(&result.Summary.Account)
	s.steering.close()
	result.Exit = process.Exit()
	if err == nil && s.o.Summary != nil {
		result.Summary.Write(s.o.Summary, result.Dir)
		fmt.Fprintln(s.o.Summary, "          stopped   by a command, before the program ended")
		s.remarks(s.o.Summary, result.Exit)
	}
	return result, err
}

// hungReason describes a program that [collect.Process] had to kill.
const hungReason = "the program hung in its handler of Ctrl-C, and was killed 2 s after the second one"

// failure is what Run reports. Where the program was to go on without its recording, it is printed, once, and is no
// failure of the program.
func (s *sink) failure(sealing error) error {
	err := sealing
	if s.halted != nil && !s.halted.limited() {
		err = explain(s.halted.err, s.o.Tap.Out)
		if sealing == nil && s.dir != nil {
			err = fmt.Errorf("%w; what was recorded is in %s", err, s.dir.Path())
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
		fmt.Fprintf(terminal.Err, "llamatap: %v\n", err)
	}
	return nil
}

// stopProgram ends the model's process after a failure: at once when nothing was recorded, for then the request
// itself was wrong, else giving it five seconds to end by itself.
func (s *sink) stopProgram(process *collect.Process) (stop func()) {
	if s.written().Packets == 0 {
		process.Stop(unix.SIGKILL)
		return func() {}
	}
	process.Stop(unix.SIGTERM)
	kill := time.AfterFunc(5*time.Second, func() { process.Stop(unix.SIGKILL) })
	return func() { kill.Stop() }
}

// pump reads until the process is gone or the recording fails.
func (s *sink) pump(ctx context.Context, process *collect.Process) error {
	err := process.Pump(ctx, s.reader, s.idle)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		process.Stop(unix.SIGTERM)
		<-process.Exited()
		_, err = s.reader.Drain()
	}
	return err
}

func overflow(o config.Overflow) collect.Overflow {
	if o == config.OverflowDrop {
		return collect.Drop
	}
	return collect.Block
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
		return budget{}, fmt.Errorf("%w: --tap-memory allows %d bytes; give it at least %dM", collect.ErrMemory, memory, leastMemory>>20)
	}
	b := budget{buffers: min(memory/4, 40<<20)}
	b.heap = b.buffers + 24<<20
	b.shared = memory - b.buffers - min(memory/4, 48<<20)
	return b, nil
}

// checkOut refuses an output folder that cannot be written before the model is loaded.
func checkOut(out string) error {
	if err := os.MkdirAll(out, 0o700); err != nil {
		return fmt.Errorf("output folder %s: %w; choose another with --tap-out", out, cause(err))
	}
	if err := unix.Access(out, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("output folder %s cannot be written: %w; choose another with --tap-out", out, err)
	}
	return nil
}

// cause takes the path out of an error that is printed next to it.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// explain makes an error of the disk one that says what to do.
func explain(err error, path string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: the disk of %s is full; free room there, choose another folder with --tap-out, or capture less (--tap-layers, --tap-tokens)", ErrRecording, path)
	}
	return err
}

// globNames lists the names of nodes that a tensor glob could have meant, without layer numbers, each once.
func globNames(g *ggmlhooks.Graph, of func(*ggmlhooks.Node) bool) string {
	var names []string
	seen := map[string]bool{}
	for i := range g.Nodes {
		if !of(&g.Nodes[i]) {
			continue
		}
		name := g.Nodes[i].Name
		if at := strings.LastIndexByte(name, '-'); at > 0 && g.Nodes[i].Layer >= 0 {
			name = name[:at]
		}
		if strings.HasPrefix(name, "node_") || strings.ContainsAny(name, " (") || name == "" || seen[name] {
			continue
		}
		seen[name] = true
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// turns is what TurnsVariable holds, 0 where it is not set.
func turns() uint32 {
	n, _ := strconv.ParseUint(os.Getenv(TurnsVariable), 10, 16)
	return uint32(n)
}
