package filemap

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// sourceOptions say what a source looks at, and who takes it.
type sourceOptions struct {
	// Target is what is looked at. What a process of it starts is looked at as well, where the kernel has BTF.
	Target bpf.Target
	// Plain takes the programs for kernels without BTF.
	Plain bool
	// Take is handed events in the order in which they ended, and when all that ended before a time has been handed
	// over. Both are called by one goroutine. The event is lent.
	Take func(*Event)
	Upto func(monoNS int64)
}

// source takes events from BPF programs.
type source struct {
	set  *bpf.Set
	ring *ringbuf.Reader
	o    sourceOptions
	fds  []int // software events

	urgent bool // of the reading goroutine
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
	err    error
}

// softwareEvents are the programs at the kernel's software events.
var softwareEvents = map[string]uint64{
	"on_fault": unix.PERF_COUNT_SW_PAGE_FAULTS, "on_fault_plain": unix.PERF_COUNT_SW_PAGE_FAULTS,
	"on_minor": unix.PERF_COUNT_SW_PAGE_FAULTS_MIN, "on_major": unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ,
}

// optional are programs that a kernel may lack: their events are then missing from the recording.
var optional = []string{"on_page", "on_page_plain", "on_cached", "on_cached_plain", "on_get", "on_get_plain",
	"on_around", "on_around_plain", "on_start", "on_issue", "on_merge", "on_complete", "on_done", "on_fork", "on_end"}

// openSource loads and attaches the programs and begins to hand events over. Its errors wrap bpf.ErrMissing where
// the machine or the rights do not suffice.
func openSource(o sourceOptions) (*source, error) {
	spec, err := bpf.Object("filemap")
	if err != nil {
		return nil, err
	}
	load := bpf.Options{
		Target: o.Target, Plain: o.Plain, Optional: optional,
		Set: map[string]any{"page_shift": uint32(bits.TrailingZeros(uint(os.Getpagesize())))},
	}
	for name := range softwareEvents {
		load.Manual = append(load.Manual, name)
	}
	c := &source{o: o, stop: make(chan struct{}), done: make(chan struct{})}
	if c.set, err = bpf.Load(spec, load); err != nil {
		return nil, err
	}
	if err = c.begin(); err != nil {
		return nil, errors.Join(err, c.set.Close())
	}
	go c.read()
	return c, nil
}

// begin attaches what is attached by processor: the returns of faults before their entries, so that none is seen
// without its end.
func (c *source) begin() error {
	var err error
	if c.ring, err = ringbuf.NewReader(c.set.Map("events")); err != nil {
		return fmt.Errorf("read events of files: %w", err)
	}
	entry := "on_fault"
	if c.set.Plain {
		entry = "on_fault_plain"
	}
	for _, name := range []string{"on_minor", "on_major", entry} {
		if err := c.onProcessors(c.set.Program(name), softwareEvents[name]); err != nil {
			c.detach()
			return errors.Join(fmt.Errorf("%w: attach %s: %w", bpf.ErrMissing, name, err), c.ring.Close())
		}
	}
	return nil
}

// onProcessors attaches a program to a software event of each processor that is online.
func (c *source) onProcessors(p *ebpf.Program, event uint64) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	before := len(c.fds)
	for cpu := range n {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: event, Size: unix.PERF_ATTR_SIZE_VER1, Sample: 1,
			Sample_type: unix.PERF_SAMPLE_ADDR,
		}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		} else if err != nil {
			return fmt.Errorf("count faults on processor %d: %w; needs CAP_PERFMON", cpu, err)
		}
		c.fds = append(c.fds, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.FD()); err != nil {
			return fmt.Errorf("on processor %d: %w", cpu, err)
		}
	}
	if len(c.fds) == before {
		return errors.New("no processor is online")
	}
	return nil
}

// AddPID adds a process to a target that is restricted to processes.
func (c *source) AddPID(pid int) error { return c.set.AddPID(pid) }

// addFile records the block requests on a file whoever issues them. Files that the target reads are added
// automatically.
func (c *source) addFile(f fileKey) error {
	key := struct {
		Ino       uint64
		Dev, Zero uint32
	}{f.Ino, f.Dev, 0}
	if err := c.set.Map("files").Put(&key, uint8(1)); err != nil {
		return fmt.Errorf("watch a file: %w", err)
	}
	return nil
}

// read hands events over until it is stopped, and then what is left.
func (c *source) read() {
	defer close(c.done)
	runtime.LockOSThread() // its priority is this thread's alone; it ends with the goroutine
	c.urgent = true
	c.setPriority()
	pause := every
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var record ringbuf.Record
	for last := false; !last; {
		select {
		case <-timer.C:
		case <-c.stop:
			last = true
		}
		if pause = min(pause*2, rarely); c.ring.AvailableBytes() > c.ring.BufferSize()/64 {
			pause = every
		}
		timer.Reset(pause)
		c.setPriority()
		if err := c.drain(&record); err != nil {
			c.err = err
			return
		}
	}
}

// setPriority gives the calling thread a priority by how full the ring buffer is. Normally it yields to all others: a
// model's threads wait for each other. One that is a quarter full would lose events soon, and goes before that.
func (c *source) setPriority() {
	urgent := c.ring.AvailableBytes() > c.ring.BufferSize()/4
	if urgent == c.urgent {
		return
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: 19}
	if urgent {
		attr.Policy, attr.Nice = unix.SCHED_NORMAL, 0
	}
	c.urgent = urgent
	if unix.SchedSetAttr(0, &attr, 0) != nil { // a sandbox may forbid the policy, or to go up again
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, int(attr.Nice))
	}
}

// drain passes on the events in the ring; then all that ended before it began have been passed on.
func (c *source) drain(record *ringbuf.Record) error {
	began := bpf.MonoNS()
	c.ring.SetDeadline(time.Unix(1, 0)) // past: what is there, without waiting
	var e Event
	for {
		err := c.ring.ReadInto(record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			return fmt.Errorf("read events of files: %w", err)
		}
		if err := decode(&e, record.RawSample); err != nil {
			return fmt.Errorf("read events of files: %w", err)
		}
		c.o.Take(&e)
	}
	if c.o.Upto != nil {
		c.o.Upto(began)
	}
	return nil
}

// Lost is what could not be recorded since the programs began, by cause.
type Lost struct {
	Ring     uint64 `json:"ring_full,omitempty"`     // events for which the ring buffer had no room
	Threads  uint64 `json:"threads_full,omitempty"`  // times that there was no room to follow a thread
	Requests uint64 `json:"requests_full,omitempty"` // block requests for which there was no room
	// Open are faults that never returned, or returned by a signal; Unknown those whose entry came before the
	// programs. Neither is a loss of what was to be recorded.
	Open    uint64 `json:"faults_open,omitempty"`
	Unknown uint64 `json:"faults_unknown,omitempty"`
}

// Lost returns what was lost so far.
func (c *source) Lost() (Lost, error) {
	var l Lost
	for i, to := range []*uint64{&l.Ring, &l.Threads, &l.Requests, &l.Open, &l.Unknown} {
		n, err := bpf.Sum(c.set.Map("counters"), uint32(i))
		if err != nil {
			return Lost{}, err
		}
		*to = n
	}
	return l, nil
}

// absent returns why parts of the recording are missing, by the program's name; usually empty.
func (c *source) absent() map[string]error { return c.set.Absent }

// Origin says which programs run, in the word of a host line.
func (c *source) Origin() string { return resource.OriginOf(c.set.Plain) }

// Programs returns the cost of the programs.
func (c *source) Programs() ([]bpf.ProgramStat, error) { return c.set.Programs() }

// Stop ends the recording and hands over what is left. What was counted can still be asked for.
func (c *source) Stop() {
	c.once.Do(func() {
		c.detach()
		close(c.stop)
		<-c.done
		c.err = errors.Join(c.err, c.leftover())
	})
}

// issued is struct issued of request.h.
type issued struct {
	NS, Sector, Ino, First, Last, Bytes uint64
	Dev, Bdev, TID, PID, Partly, _      uint32
}

// leftover hands over the requests whose end was not seen: those in flight, and on some virtual machines others.
func (c *source) leftover() error {
	now := bpf.MonoNS()
	return bpf.Each(c.set.Map("requests"), func(_ uint64, r issued) {
		if r.NS == 0 {
			return
		}
		e := Event{
			Kind: Request, Flags: Unseen, BeginNS: int64(r.NS), EndNS: now, At: r.Sector, File: fileKey{r.Dev, r.Ino},
			First: r.First, Last: r.Last,
			Bytes: r.Bytes, BlockDev: r.Bdev, TID: r.TID, PID: r.PID,
		}
		if r.Partly != 0 {
			e.Flags |= Partly
		}
		c.o.Take(&e)
	})
}

// Close detaches the programs, hands over what is left, and frees them. It may be called twice.
func (c *source) Close() error {
	c.Stop()
	if c.ring != nil {
		c.err = errors.Join(c.err, c.ring.Close(), c.set.Close())
		c.ring = nil
	}
	return c.err
}

func (c *source) detach() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
	c.fds = nil
}
