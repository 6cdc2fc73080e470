package perf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Session is a set of open events and the rings that they write to, one per CPU. It is for one goroutine; Close may
// be called from any, once no other call runs.
type Session struct {
	opened  []int // descriptors
	rings   []*cpuRing
	decoder *Decoder
	record  Record
	stats   Stats
	pid     int
	chosen  map[seat]uint64 // the event that counts for a thread, where it may have several
	more    bool            // threads were found while others were being opened: samples may come twice
	missed  uint64          // records that found no room, as the kernel counts them
	gone    bool            // no ring will be written to any more
}

// A seat is what one of the events asked for is for one thread on one CPU.
type seat struct {
	tid        uint32
	cpu, event int
}

// cpuRing is the ring of a CPU, in memory that the kernel writes to.
type cpuRing struct {
	cpu  int
	fd   int
	mem  []byte
	page *unix.PerfEventMmapPage
	ring *Ring
	head uint64 // as it was when Drain began
	last []byte // the sample before, where threads may have several events
}

// defaultPages is how large a ring is unless it is said: 256 KiB, half of what the kernel allows a user without
// rights by default.
const defaultPages = 64

// endingStep is how long Wait waits where no ring can wake it: the process ends, or continues without its first thread.
const endingStep = 10 * time.Millisecond

// rounds is how often threads are looked for that began meanwhile.
const rounds = 16

// Open opens events for all threads of a process. They count from then on.
func Open(o Options) (*Session, error) {
	if len(o.Events) == 0 {
		return nil, fmt.Errorf("%w: no event is asked for", ErrOpen)
	}
	if o.Pages == 0 {
		o.Pages = defaultPages
	}
	if o.Pages < 0 || o.Pages&(o.Pages-1) != 0 {
		return nil, fmt.Errorf("%w: a ring of %d pages: use a power of two", ErrOpen, o.Pages)
	}
	if o.PID == 0 {
		o.PID = os.Getpid()
	}
	list, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("%w: CPUs are not known: %w", ErrOpen, err)
	}
	cpus, err := parseCPUs(string(list))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	s := &Session{pid: o.PID, chosen: map[seat]uint64{}}
	events := make([]Event, len(o.Events))
	for i, e := range o.Events {
		events[i] = Event{Name: e.Name, Attr: o.attr(e, o.tracks(i))}
	}
	s.decoder = newDecoder(events)
	if err := (&opener{s, o, events, cpus, map[int]bool{}}).open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// tracks reports whether an event also records processes and mappings: the first with a ring on its CPUs does.
func (o *Options) tracks(event int) bool {
	e := o.Events[event]
	for _, before := range o.Events[:event] {
		shared := before.CPUs == nil || e.CPUs == nil || slices.ContainsFunc(e.CPUs,
			func(cpu int) bool { return slices.Contains(before.CPUs, cpu) })
		if !before.WithNext && shared {
			return false
		}
	}
	return !e.WithNext
}

// attr completes what is asked for with what a session needs.
func (o *Options) attr(e eventSpec, tracks bool) Attr {
	a := e.Attr
	a.SampleType |= sampleIdentifier | sampleTID | sampleTime
	a.ReadFormat |= formatID
	if countsLost() {
		a.ReadFormat |= formatLost
	}
	a.Flags |= flagInherit | flagDisabled | flagSampleIDAll | flagUseClockID | flagWatermark
	a.ClockID = clockMonotonic
	a.Wakeup = uint32(o.Pages * os.Getpagesize() / 4)
	if tracks {
		a.Flags |= flagTask | flagComm | flagMmap | flagMmap2 | flagMmapData
	}
	if !o.Children {
		a.Flags |= flagInheritThread
	}
	if o.UserOnly {
		a.Flags |= flagExcludeKernel
	}
	if e.WithNext {
		a.Period = 0
		a.Flags &^= flagWatermark
		a.Wakeup = 0
	}
	return a
}

// opener opens the events of a session.
type opener struct {
	*Session
	o      Options
	events []Event
	cpus   []int
	direct map[int]bool // threads that events were opened for
}

// open opens events for each thread until no new one is found. A thread that began meanwhile may have inherited events
// from its parent and then has them twice: see count. What it inherited before they were enabled stays disabled, in it
// and in all that it begins, so that threads are looked for once more afterwards.
func (s *opener) open() error {
	for round := range rounds {
		fresh, err := s.fresh(round > 0)
		if err != nil {
			return err
		}
		if fresh == 0 {
			break
		}
		if err := s.control(unix.PERF_EVENT_IOC_ENABLE); err != nil {
			return err
		}
	}
	if len(s.opened) == 0 {
		return fmt.Errorf("%w: %w: process %d", ErrOpen, ErrGone, s.o.PID)
	}
	return nil
}

// fresh opens events for each thread that has none of its own. It returns how many there were. late: the
// threads may have inherited some.
func (s *opener) fresh(late bool) (fresh int, err error) {
	pids := []int{s.o.PID}
	if s.o.Children {
		pids = append(pids, Descendants(s.o.PID)...)
	}
	for i, pid := range pids {
		tids, err := threads(pid)
		if err != nil && i > 0 {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		for _, tid := range tids {
			if s.direct[tid] {
				continue
			}
			fresh++
			if err := s.thread(pid, tid); errors.Is(err, unix.ESRCH) {
				continue // it ended meanwhile
			} else if err != nil {
				return 0, err
			}
			s.direct[tid] = true
			s.more = s.more || late
		}
	}
	return fresh, nil
}

// threads are those that a process has now, its first one first: the rings are its, and last as long as it does.
func threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w: process %d", ErrOpen, ErrGone, pid)
	}
	tids := []int{pid}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil && tid != pid {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// runs reports whether a process has threads that have not ended.
func runs(pid int) bool {
	tids, _ := threads(pid)
	return slices.ContainsFunc(tids, func(tid int) bool {
		fields := stat(strconv.Itoa(pid), "task", strconv.Itoa(tid))
		return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
	})
}

// thread opens all events of a thread of a process, on each CPU.
func (s *opener) thread(pid, tid int) error {
	for _, cpu := range s.cpus {
		leader := -1
		for k := range s.events {
			if only := s.o.Events[k].CPUs; only != nil && !slices.Contains(only, cpu) {
				continue
			}
			fd, err := openEvent(&s.events[k].Attr, tid, cpu, leader)
			if errors.Is(err, unix.ESRCH) {
				return err
			}
			if err != nil {
				own := s.o
				own.PID = pid // whose error it is
				return explain(s.events[k].Name, own, err)
			}
			s.opened = append(s.opened, fd)
			leader = -1
			if s.o.Events[k].WithNext {
				leader = fd
				continue
			}
			if err := s.attach(cpu, fd); err != nil {
				return err
			}
			var id uint64 // that the event's samples have
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_ID,
				uintptr(unsafe.Pointer(&id))); errno != 0 {
				return fmt.Errorf("%w: ask for an event's number: %w", ErrOpen, errno)
			}
			s.decoder.addID(id, k)
		}
	}
	return nil
}

// openEvent is perf_event_open(2).
func openEvent(a *Attr, tid, cpu, group int) (int, error) {
	raw := a.Append(nil)
	fd, _, errno := unix.Syscall6(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&raw[0])), uintptr(tid),
		uintptr(cpu), uintptr(group),
		unix.PERF_FLAG_FD_CLOEXEC, 0)
	runtime.KeepAlive(raw)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// attach makes an event write to the ring of its CPU, which the first event brings.
func (s *opener) attach(cpu, fd int) error {
	if i := slices.IndexFunc(s.rings, func(r *cpuRing) bool { return r.cpu == cpu }); i >= 0 {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, s.rings[i].fd); err != nil {
			return fmt.Errorf("%w: let an event write to the ring of CPU %d: %w", ErrOpen, cpu, err)
		}
		return nil
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, page*(1+s.o.Pages), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return explainRing(s.o, page, err)
	}
	head := (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0]))
	s.rings = append(s.rings, &cpuRing{cpu: cpu, fd: fd, mem: mem, page: head, ring: newRing(mem[page:], 0)})
	return nil
}

// Stop ends the sampling. What was recorded is still in the rings. Since Linux 6.0 the total that found no room there
// is then known.
func (s *Session) Stop() error {
	err := s.control(unix.PERF_EVENT_IOC_DISABLE)
	if countsLost() {
		s.missed = s.lost()
	}
	return err
}

// countsLost reports whether the kernel counts, per event, the records that found no room: a ring reports them only
// with the next record that has room.
var countsLost = sync.OnceValue(func() bool {
	a := Attr{Type: typeSoftware, Config: swPageFaults, ReadFormat: formatID | formatLost,
		Flags: flagDisabled | flagExcludeKernel}
	fd, err := openEvent(&a, 0, -1, -1)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
})

// lost returns how many records of all events found no room. Those of threads that began later count with the thread
// that they inherited the event from.
func (s *Session) lost() (sum uint64) {
	var b [8 * 3]byte // count, number, lost
	for _, fd := range s.opened {
		if n, err := unix.Read(fd, b[:]); err == nil && n == len(b) {
			sum += binary.LittleEndian.Uint64(b[16:])
		}
	}
	return sum
}

func (s *Session) control(what uint) error {
	for _, fd := range s.opened {
		if err := unix.IoctlSetInt(fd, what, 0); err != nil {
			return fmt.Errorf("start or stop an event: %w", err)
		}
	}
	return nil
}

// Drain passes on what is in the rings: samples, and records of processes. A record is valid until each returns. It
// returns how many samples there were, and each's first error, after which the rest waits for the next call. Within a
// CPU records come in the order of time.
func (s *Session) Drain(each func(*Record) error) (int, error) {
	before := s.stats.Samples
	for _, r := range s.rings {
		r.head = atomic.LoadUint64(&r.page.Data_head)
	}
	for _, r := range s.rings {
		err := s.drain(r, each)
		atomic.StoreUint64(&r.page.Data_tail, r.ring.Tail())
		if err != nil {
			return int(s.stats.Samples - before), err
		}
	}
	return int(s.stats.Samples - before), nil
}

func (s *Session) drain(r *cpuRing, each func(*Record) error) error {
	for {
		raw, err := r.ring.Next(r.head)
		if err != nil {
			s.stats.Bad++
			r.ring.Skip(r.head)
			return nil
		}
		if raw == nil {
			return nil
		}
		if err := s.decoder.Decode(raw, &s.record); err != nil {
			s.stats.Bad++
			continue
		}
		if s.more && s.record.Type == recordSample && r.isRepeat(raw) {
			s.stats.Twice++
			continue
		}
		if !s.count(&s.record, r.cpu) {
			continue
		}
		if err := each(&s.record); err != nil {
			return err
		}
	}
}

// isRepeat reports whether a sample repeats the one before it. Of a software event that a thread has twice the kernel
// writes two samples, one after the other, which are the same even in the event's number (seen on 6.18: it fills in
// once what is asked of both).
func (r *cpuRing) isRepeat(raw []byte) bool {
	if bytes.Equal(raw, r.last) {
		return true
	}
	r.last = append(r.last[:0], raw...)
	return false
}

// count counts a record from the ring of a CPU, and reports whether it is to be passed on.
//
// A thread that began while events were opened may have inherited some and got its own besides. Each of them records
// everything that the thread does on a CPU, so that the first that is seen there counts, and the others do not.
func (s *Session) count(r *Record, cpu int) bool {
	switch r.Type {
	case recordSample:
		if s.more {
			at := seat{r.Sample.TID, cpu, r.Event}
			if s.chosen[at] == 0 {
				s.chosen[at] = r.Sample.ID
			}
			if s.chosen[at] != r.Sample.ID {
				s.stats.Twice++
				return false
			}
		}
		s.stats.Samples++
	case RecordExit:
		if s.more {
			maps.DeleteFunc(s.chosen, func(at seat, _ uint64) bool { return at.tid == r.TID })
		}
	case recordLost:
		s.stats.Lost += r.Lost
	case recordLostSamples:
		s.stats.LostSamples += r.Lost
	case recordThrottle:
		s.stats.Throttles++
	}
	return true
}

// Wait waits until a ring is a quarter full, or for a time. It reports whether there is something to read. ErrGone: the
// process has ended, and what is in the rings is the last.
func (s *Session) Wait(atMost time.Duration) (bool, error) {
	if s.gone {
		return false, ErrGone
	}
	polled := make([]unix.PollFd, len(s.rings))
	for i, r := range s.rings {
		polled[i] = unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(polled, int(atMost.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("wait for samples: %w", err)
	}
	ready, ended := false, 0
	for _, p := range polled {
		ready = ready || p.Revents&unix.POLLIN != 0
		if p.Revents&unix.POLLHUP != 0 {
			ended++
		}
	}
	if ended == len(polled) {
		if s.gone = !runs(s.pid); s.gone {
			return false, ErrGone
		}
		time.Sleep(min(atMost, endingStep)) // its first thread has ended, others are about to, or continue
	}
	return ready, nil
}

// Stats is what was read until now.
func (s *Session) Stats() Stats {
	stats := s.stats
	stats.Lost = max(stats.Lost, s.missed)
	return stats
}

// Close ends the session. What was not drained is gone.
func (s *Session) Close() error {
	var first error
	for _, r := range s.rings {
		if err := unix.Munmap(r.mem); err != nil && first == nil {
			first = fmt.Errorf("give a ring back: %w", err)
		}
	}
	for _, fd := range s.opened {
		if err := unix.Close(fd); err != nil && first == nil {
			first = fmt.Errorf("close an event: %w", err)
		}
	}
	s.rings, s.opened = nil, nil
	return first
}
