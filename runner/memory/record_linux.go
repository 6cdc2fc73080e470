package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
)

// recorder records a process, with those that it starts.
type recorder struct {
	*run
	o       Options
	pid     int
	set     *sample.Set
	queue   *sample.Queue
	spaces  *sample.Spaces
	monitor *monitor
	pages   *pages
	rows    map[int32]uint64 // by process
	others  uint64
	looked  int64
	server  *control.Server // takes markers
	written int64           // rows of before this time are
}

// Record samples a process, with those that it starts, until it ends, ctx does, or the duration is over, and seals
// what it wrote. A command that cannot be sampled is not run. What it returns is valid with an error too, as far as
// the process was started.
func Record(ctx context.Context, o Options) (Result, error) {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	r := &recorder{o: o, pid: o.PID, queue: sample.NewQueue(os.TempDir()), spaces: sample.NewSpaces(),
		rows: map[int32]uint64{}}
	defer r.queue.Close()
	ended, exit, err := r.start()
	if err != nil {
		return Result{}, errors.Join(err, r.close())
	}
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Duration)
		defer cancel()
	}
	r.follow(ctx, ended)
	r.finish(exit)
	result := Result{Dir: r.dir.Path(), Ended: ended, Exit: exit}
	result.Use, err = r.seal()
	return result, err
}

// start begins to sample the process, and starts it first where it is a command. ended is closed when it has ended;
// exit says how, of a command.
func (r *recorder) start() (ended chan struct{}, exit func() *os.ProcessState, err error) {
	ended = make(chan struct{})
	exit = func() *os.ProcessState { return nil }
	if r.o.Command == nil {
		if err := r.exists(); err != nil {
			return nil, nil, err
		}
		if err := r.open(r.pid); err != nil {
			return nil, nil, err
		}
		go r.await(ended)
	} else {
		cmd := r.o.Command
		if out, err := filepath.Abs(r.o.Out); err == nil {
			if cmd.Env == nil {
				cmd.Env = os.Environ()
			}
			cmd.Env = append(cmd.Env, FolderEnv+"="+out)
		}
		if slices.ContainsFunc(r.o.Choices, func(of []string) bool { return slices.Contains(of, sample.Pages) }) {
			if err := r.prepare(cmd); err != nil {
				return nil, nil, err
			}
		}
		opened := false
		err := perf.StartHeld(cmd, func(pid int) error {
			opened = true
			return r.open(pid)
		})
		if err != nil && !opened {
			err = startError(cmd, err)
		}
		if err != nil {
			return nil, nil, err
		}
		go func() {
			_ = cmd.Wait() // the result is in its ProcessState
			close(ended)
		}()
		exit = func() *os.ProcessState {
			select {
			case <-ended:
				return cmd.ProcessState
			default:
				return nil
			}
		}
	}
	r.set.Start()
	return ended, exit, nil
}

// exists reports why a process cannot be recorded by any user.
func (r *recorder) exists() error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", r.pid))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: process %d does not run: give the number of one that does, as ps prints it", ErrProcess,
			r.pid)
	case err == nil && len(maps) == 0:
		return fmt.Errorf("%w: process %d has no memory of its own: it is a thread of the kernel, or has ended",
			ErrProcess, r.pid)
	}
	return nil
}

// startError says what helps where a command cannot be started.
func startError(cmd *exec.Cmd, err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w %s: %w: give its path, such as ./%s", ErrStart, cmd.Path, fs.ErrNotExist,
			filepath.Base(cmd.Path))
	case errors.Is(err, exec.ErrDot):
		return fmt.Errorf("%w %s: %w: it lies in the working folder, write ./%s", ErrStart, cmd.Path, fs.ErrPermission,
			filepath.Base(cmd.Path))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s: %w: give a program's path; of a script, the interpreter that its first line names "+
			"may be missing", ErrStart, cmd.Path, fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w %s: %w: it is not a program, or this user may not run it (chmod +x)", ErrStart, cmd.Path,
			fs.ErrPermission)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w %s: %w: it is of another machine, or a script whose first line names no interpreter (#!)",
			ErrStart, cmd.Path, syscall.ENOEXEC)
	}
	return fmt.Errorf("%w: %w", ErrStart, err)
}

// prepare lets a command be watched for written pages, by the tap that is preloaded into it.
func (r *recorder) prepare(cmd *exec.Cmd) error {
	if r.o.Tap == "" {
		return fmt.Errorf("%w: the tap's object, which lets a program be watched, is not known", sample.ErrWatch)
	}
	cmd.Env = llama.Preload(append(cmd.Environ(), sample.WrittenEnv), r.o.Tap)
	return nil
}

// open opens the collectors and, when they run, makes the directory.
func (r *recorder) open(pid int) (err error) {
	r.pid = pid
	r.set, err = sample.Open(sample.Options{
		Choices: r.o.Choices, PID: pid, Children: !r.o.Alone, Period: r.o.Period, RingBytes: r.o.RingBytes,
		Mapped: r.spaces.Observe,
	}, r.queue)
	if errors.Is(err, fs.ErrPermission) && !r.o.Alone && len(perf.Descendants(pid)) > 0 {
		err = fmt.Errorf("%w; --no-children leaves out what the process has started", err)
	}
	if err != nil {
		return err
	}
	now, mono := time.Now(), bpf.MonoNS()
	if err := r.readProcess(pid, mono); err != nil {
		return err
	}
	for _, c := range r.set.Collectors() {
		for _, note := range c.Notes {
			r.o.Warn(fmt.Errorf("%s: %s", c.Name, note))
		}
	}
	if r.run, err = newRun(ledger.TableOptions{}, r.o.Out, r.o.name(pid), r.o.Warn); err != nil {
		return err
	}
	r.use = r.usage
	space := r.spaces.Of(int32(pid))
	if space == nil {
		return fmt.Errorf("%w: process %d has ended", ErrProcess, pid)
	}
	r.offset, r.looked = now.UnixNano()-mono, mono
	r.regions = space.Map()
	r.regions.OfProcess(int32(pid))
	r.meta.Llamatap, r.meta.Command, r.meta.Clock = r.o.Version, r.o.Echo,
		rundir.Clock{UnixNS: now.UnixNano(), MonoNS: mono}
	begun := r.meta // a recorder that is killed leaves what was recorded, and of whom
	begun.SealedBy = ""
	if err := r.dir.WriteJSON(rundir.MetadataName, begun); err != nil {
		return err
	}
	if r.monitor, err = startMonitor(r.dir, pid, r.o.Alone, r.o.Interval, r.o.Warn); err != nil {
		return err
	}
	r.monitor.follow(r.family())
	r.phases.begin = now.UnixNano()
	if r.server, err = control.Listen(r.dir.Path()); err != nil {
		return err
	}
	if r.set.Pages() {
		r.pages, err = newPages(r)
	}
	return err
}

// readProcess looks at what the process has mapped, and those that it has started before it was recorded.
func (r *recorder) readProcess(pid int, mono int64) error {
	if _, err := r.spaces.Look(pid, mono); err != nil {
		return fmt.Errorf("what process %d has mapped: %w; run as its owner, or as root with CAP_SYS_PTRACE", pid, err)
	}
	if !r.o.Alone {
		for _, child := range perf.Descendants(pid) {
			_, _ = r.spaces.Look(child, mono) // of one that has ended meanwhile nothing is needed
		}
	}
	r.spaces.Gather()
	r.spaces.Apply(mono)
	return nil
}

// name is what the folder of the run is called: the program.
func (o *Options) name(pid int) string {
	if o.Command != nil {
		return filepath.Base(o.Command.Path)
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if name := strings.TrimSpace(string(text)); name != "" {
		return name
	}
	return fmt.Sprintf("pid-%d", pid)
}

// await closes ended when a process that is not a child has ended.
func (r *recorder) await(ended chan struct{}) {
	defer close(ended)
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err != nil {
		for unix.Kill(r.pid, 0) == nil || errors.Is(unix.Kill(r.pid, 0), unix.EPERM) {
			time.Sleep(step)
		}
		return
	}
	defer unix.Close(fd)
	for {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); n > 0 || err != nil &&
			!errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// How often rows are written, and the process's mappings looked at. A sample is written lag after its time: what the
// kernel reports of mappings comes through other rings, and is known by then.
const (
	step = 50 * time.Millisecond
	lag  = 250 * time.Millisecond
	look = time.Second

	looks = 8 // processes that are looked at each time, beside the first
)

// follow writes what comes until the end.
func (r *recorder) follow(ctx context.Context, ended <-chan struct{}) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-tick.C:
		}
		r.server.Serve(r.mark)
		now := bpf.MonoNS()
		if now-r.looked >= int64(look) {
			r.looked = now
			_, _ = r.spaces.Look(r.pid, now) // of one that ends what was known stays
			r.spaces.LookAround(now, looks)
			r.spaces.Forget(now - int64(2*look))
		}
		r.pages.step(now)
		r.put(now - int64(lag))
		r.monitor.follow(r.family())
		r.fail(r.out.Tick(now))
	}
}

// family are the processes that run: those that the kernel reported or, without sampled events, those that were found.
func (r *recorder) family() []int {
	if len(r.set.Collectors()) == 0 && r.pages != nil {
		return r.pages.family
	}
	return r.spaces.Running()
}

// put writes the samples of before a time.
func (r *recorder) put(upto int64) {
	r.spaces.Gather()
	r.queue.Before(upto, func(a *memtrace.Access) {
		if r.o.Alone && int(a.PID) != r.pid {
			r.others++
			return
		}
		r.spaces.Apply(a.TimeNS)
		row := sample.Row{Access: *a, Moment: sample.NoMoment, Block: -1}
		r.label(&row)
		r.write(&row)
		r.rows[a.PID]++
	})
	r.spaces.Apply(upto)
	r.pages.write(upto)
	r.written = upto
}

// label says of a row what it touched, and which function did it. Regions of other processes than the first are in
// the table if they were touched.
func (r *recorder) label(row *sample.Row) {
	space := r.spaces.Of(row.PID)
	if space == nil {
		return
	}
	row.Hit = space.Map().Address(row.Addr, row.TimeNS)
	if row.Hit.Region != nil {
		r.regions.Adopt(row.Hit.Region, row.PID)
	}
	if row.Symbol == "" && row.IP != 0 {
		row.Symbol = space.Function(row.IP)
	}
	row.Variable = space.Variable(row.Addr, row.Size)
}

// processes are those that were recorded, as metadata.json has them.
func (r *recorder) processes() []followed {
	var all []followed
	for _, p := range r.spaces.Processes() {
		if r.o.Alone && int(p.PID) != r.pid {
			continue
		}
		one := followed{Process: p, Samples: r.rows[p.PID]}
		if p.Begin != 0 {
			one.Begin = p.Begin + r.offset
		}
		if p.End != 0 {
			one.End = p.End + r.offset
		}
		all = append(all, one)
	}
	return all
}

// followed is the entry for a process in metadata.json. Begin and end are omitted where they were not seen.
type followed struct {
	sample.Process
	Begin   int64  `json:"begin_unix_ns,omitempty"`
	End     int64  `json:"end_unix_ns,omitempty"`
	Samples uint64 `json:"samples"` // of all processes that had its number
}

// finish ends the sampling.
func (r *recorder) finish(exit func() *os.ProcessState) {
	r.pages.step(bpf.MonoNS())
	r.set.Stop()
	r.server.Serve(r.mark)
	r.server.Close()
	r.phases.end = bpf.MonoNS() + r.offset
	r.put(math.MaxInt64)
	if p := r.pages; p != nil {
		for _, w := range p.watched {
			p.end(w)
		}
	}
	for _, why := range r.pages.missing() {
		r.o.Warn(errors.New(why))
	}
	r.extra("process_monitor", r.monitor.close())
	r.extra("processes", r.processes())
	if state := exit(); state != nil {
		r.meta.Exit = &rundir.Exit{Status: state.ExitCode()}
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			r.meta.Exit.Status, r.meta.Exit.Signal = 128+int(status.Signal()), unix.SignalName(status.Signal())
		}
	}
	if err := r.set.Close(); err != nil {
		r.o.Warn(err)
	}
}

// usage is what was sampled so far.
func (r *recorder) usage() *sample.Use {
	use := r.set.Use(&r.tallies)
	use.Others = r.others
	if r.pages != nil {
		use.Collectors = append(use.Collectors, r.pages.usage())
		use.Missing = r.pages.missing()
	}
	return use
}

// close gives up what was begun. A directory in which nothing could be recorded is removed.
func (r *recorder) close() error {
	err := r.set.Close()
	if r.run != nil {
		if r.server != nil {
			r.server.Close()
		}
		r.monitor.close()
		r.remove()
	}
	return err
}
