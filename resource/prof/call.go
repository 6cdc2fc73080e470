package prof

import (
	"math"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// A call is a tracked system call, or one of several purposes of one.
type call struct {
	name, op string
	waits    bool
	sampled  bool // a read or write, of which --sample-read-write times some
}

// calls are the tracked ones, numbered as in calls.h.
var calls = [...]call{
	{}, {name: "read", sampled: true}, {name: "write", sampled: true}, {name: "pread64", sampled: true},
	{name: "pwrite64", sampled: true}, {name: "readv", sampled: true}, {name: "writev", sampled: true},
	{name: "preadv", sampled: true},
	{name: "pwritev", sampled: true}, {name: "preadv2", sampled: true}, {name: "pwritev2", sampled: true},
	{name: "open"}, {name: "openat"}, {name: "openat2"}, {name: "close"},
	{name: "fsync"}, {name: "fdatasync"}, {name: "fallocate"}, {name: "mmap"}, {name: "munmap"}, {name: "madvise"},
	{name: "sendto"},
	{name: "sendmsg"}, {name: "sendmmsg"}, {name: "recvfrom"}, {name: "recvmsg"}, {name: "recvmmsg"},
	{name: "sendfile"},
	{name: "connect"}, {name: "accept"}, {name: "accept4"}, {name: "io_uring_enter"},
	{name: "futex", op: "wait", waits: true}, {name: "futex", op: "wake", waits: true},
	{name: "futex", op: "other", waits: true},
	{name: "epoll_wait", waits: true}, {name: "epoll_pwait", waits: true}, {name: "epoll_pwait2", waits: true},
	{name: "poll", waits: true},
	{name: "ppoll", waits: true}, {name: "select", waits: true}, {name: "pselect6", waits: true},
	{name: "nanosleep", waits: true},
	{name: "clock_nanosleep", waits: true},
}

func (c call) kind() resource.ProfType {
	if c.waits {
		return resource.ProfTypeSync
	}
	return resource.ProfTypeSyscall
}

// Sizes of the tables of calls.h.
const (
	callSlots    = 64
	latencySlots = 120
	latencyUnit  = 6 // log2 ns
	errnoLast    = 133
	errnoRestart = 512
	errnoSlots   = errnoLast + 1 + 6
)

// latencyBounds are the smallest and the largest latency of a slot in nanoseconds; the last slot has no largest.
func latencyBounds(slot int) (low, high uint64) {
	first := func(slot int) uint64 {
		if slot < 4 {
			return uint64(slot) << latencyUnit
		}
		power := slot/4 + 1
		return uint64(4+slot%4) << (power - 2) << latencyUnit
	}
	if slot >= latencySlots-1 {
		return first(latencySlots - 1), math.MaxUint64
	}
	return first(slot), first(slot+1) - 1
}

// A tally is what is known of a call, of one process or of several.
type tally struct {
	count, errors, bytes, timed, ns uint64
	longest                         uint64 // of the interval; 0 where none was timed
	latency                         [latencySlots]uint32
}

// add counts another tally in.
func (t *tally) add(other *tally) {
	t.count += other.count
	t.errors += other.errors
	t.bytes += other.bytes
	t.timed += other.timed
	t.ns += other.ns
	t.longest = max(t.longest, other.longest)
	for i, n := range other.latency {
		t.latency[i] += n
	}
}

// since returns what was counted after before. The longest is the interval's already, but for a call that was being
// counted when the interval began: then its slot gives a bound.
func (t *tally) since(before *tally) tally {
	d := tally{t.count - before.count, t.errors - before.errors, t.bytes - before.bytes, t.timed - before.timed,
		t.ns - before.ns, t.longest, t.latency}
	top := -1
	for i, n := range before.latency {
		if d.latency[i] -= n; d.latency[i] > 0 {
			top = i
		}
	}
	if top < 0 {
		d.longest = 0
	} else if low, high := latencyBounds(top); d.longest < low || d.longest == 0 {
		if d.longest = high; top == latencySlots-1 {
			d.longest = low
		}
	}
	return d
}

// percentile returns the upper bound of the latency below which p percent of the timed calls lie, in microseconds;
// nil where none was timed.
func (t *tally) percentile(p float64) *float64 {
	if t.timed == 0 {
		return nil
	}
	want := uint64(max(1, math.Ceil(float64(t.timed)*p/100)))
	var seen uint64
	for slot, n := range t.latency {
		if seen += uint64(n); seen < want {
			continue
		}
		_, high := latencyBounds(slot)
		return micros(t.atMost(high))
	}
	return t.max()
}

// atMost is a bound of a latency with the longest that was seen.
func (t *tally) atMost(ns uint64) uint64 {
	if t.longest > 0 {
		return min(ns, t.longest)
	}
	return ns
}

// max is the longest latency in microseconds; nil where none was timed.
func (t *tally) max() *float64 {
	if t.timed == 0 || t.longest == 0 {
		return nil
	}
	return micros(t.longest)
}

func micros(ns uint64) *float64 {
	us := float64(ns) / 1e3
	return &us
}

// total returns the time of all calls in nanoseconds, scaled from those that were timed.
func (t *tally) total() uint64 {
	if t.timed == 0 || t.timed == t.count {
		return t.ns
	}
	return uint64(float64(t.ns) / float64(t.timed) * float64(t.count))
}

// buckets lists the slots that hold something.
func (t *tally) buckets() []resource.ProfBucket {
	var profBuckets []resource.ProfBucket
	for slot, n := range t.latency {
		if n > 0 {
			low, high := latencyBounds(slot)
			profBuckets = append(profBuckets, resource.ProfBucket{LowNS: low, HighNS: max(low, t.atMost(high)),
				Count: uint64(n)})
		}
	}
	return profBuckets
}

// event is what a call of all processes becomes.
func (t *tally) event(c call, length time.Duration) *resource.ProfSyscall {
	e := &resource.ProfSyscall{
		Syscall: c.name, Op: c.op, Count: t.count, Errors: t.errors, Bytes: t.bytes, Timed: t.timed,
		LatP50US: t.percentile(50), LatP95US: t.percentile(95), LatP99US: t.percentile(99), LatMaxUS: t.max(),
		Latency: t.buckets(), TopCallers: []resource.ProfCaller{},
	}
	e.Type = c.kind()
	if t.timed > 0 {
		mean := float64(t.ns) / float64(t.timed) / 1e3
		e.LatAvgUS = &mean
	}
	if done := t.count - t.errors; done > 0 {
		e.BytesPerCall = float64(t.bytes) / float64(done)
	}
	if length > 0 {
		e.ThroughputBS = float64(t.bytes) / length.Seconds()
	}
	return e
}

// caller is what a call of one process becomes.
func (t *tally) caller(pid int, comm string) resource.ProfCaller {
	return resource.ProfCaller{
		PID: pid, Comm: comm, Count: t.count, LatTotalNS: t.total(), Bytes: t.bytes, Errors: t.errors,
		LatP50US: t.percentile(50), LatP99US: t.percentile(99), LatMaxUS: t.max(),
	}
}
