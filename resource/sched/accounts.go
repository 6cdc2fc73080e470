package sched

import (
	"bytes"
	"cmp"

	"github.com/llamatap/llamatap/resource"
)

// The states of a thread, as account.h numbers them.
const (
	onCPU = iota
	runnable
	blockedDisk
	blockedLock
	blockedOther
	futex
	idle
	gone

	states    = 8
	stateBits = 3

	callOfKernel = -2 // CALL_OF_KERNEL
)

// threadKey is struct thread_key of sched.bpf.c.
type threadKey struct{ TID, Start uint32 }

// accounts is struct thread_accounts of account.h. All figures only grow.
type accounts struct {
	Born, Mark                     uint64
	NS                             [states]uint64
	Voluntary, Involuntary, Faults uint64
	Minor, Major                   uint64
	MinorFirst, MajorFirst         uint64
	WaitMax, WaitMaxBefore         uint64
	WaitEpoch, WaitEpochBefore     uint32
	Waits                          [resource.HistogramSlots]uint32
	Delay                          uint64
	TGID                           uint32
	Call                           int32
	Comm                           [16]byte
}

func (a *accounts) state() int   { return int(a.Mark & (states - 1)) }
func (a *accounts) since() int64 { return int64(a.Mark >> stateBits) }
func (a *accounts) comm() string { return commText(a.Comm) }
func commText(c [16]byte) string { text, _, _ := bytes.Cut(c[:], []byte{0}); return string(text) }

// steady reports whether the accounts were read at one moment: the times add up (account.h).
func (a *accounts) steady() bool {
	var sum uint64
	for _, ns := range a.NS {
		sum += ns
	}
	return sum == a.Mark>>stateBits-a.Born
}

// longestWait returns the longest wait for a processor, in ns, that ended in an interval; 0 is none.
func (a *accounts) longestWait(epoch uint32) uint64 {
	switch epoch {
	case a.WaitEpoch:
		return a.WaitMax
	case a.WaitEpochBefore:
		return a.WaitMaxBefore
	}
	return 0
}

// present is what the kernel says at a snapshot of a thread that is there.
type present struct {
	tgid         uint32
	queued       int64 // how long it has waited for a processor, where its waking is not seen
	counted      bool  // minor and major are known
	minor, major uint64
	comm         string
}

// history is what snapshots have reported of a thread so far, so that the next reports the rest.
type history struct {
	at                             int64 // up to when
	ns                             [states]int64
	voluntary, involuntary, faults uint64
	minor, major                   uint64
	waits                          [resource.HistogramSlots]uint32
	born                           uint64
	comm                           string
	graphs                         *graphShare
	absent                         bool // it was not there at the last snapshot, though it had not ended
}

// graphShare is how long a thread was busy in the time in which graphs were computed, and that time.
type graphShare struct{ busy, computed int64 }

// spent is what a thread did in an interval.
type spent struct {
	line    resource.ThreadLine
	waits   resource.Histogram
	maxWait uint64

	from, to int64       // when it lived in the interval
	graphs   *graphShare // nil where it was polled
}

// assignRoles decides the roles of threads in an interval. computed says how much of a time graphs were computed in.
func assignRoles(threadTimes []spent, from, to int64, computed func(from, to int64) resource.GraphTime) {
	graphs := computed(from, to)
	for i := range threadTimes {
		if s := &threadTimes[i]; s.graphs == nil || s.from <= from && s.to >= to {
			s.assignRole(graphs)
		} else {
			s.assignRole(computed(s.from, s.to))
		}
	}
}

// assignRole decides the thread's role. One that was busy for half of the time or more in which graphs were computed,
// since it was first seen, belongs to the team that computes them, but for the tap's own. c is of its time in the
// interval.
func (s *spent) assignRole(c resource.GraphTime) {
	isTeam := false
	if g := s.graphs; g != nil {
		if c.Known {
			lived := min(c.NS, s.line.LivedNS)
			g.computed += lived
			g.busy += min(lived, s.line.OnCPUNS+s.line.RunnableWaitNS)
		}
		isTeam = g.computed > 0 && 2*g.busy >= g.computed && s.line.Comm != resource.TapThread
	}
	s.line.Judge(isTeam, c)
}

// active reports whether a thread did anything but idle.
func (s *spent) active() bool {
	return s.line.OnCPUNS > 0 || s.line.OffCPUNS() > 0 || s.line.FutexNS != nil && *s.line.FutexNS > 0 ||
		s.line.Faults > 0 || s.line.Voluntary+s.line.Involuntary > 0
}

// A moment is a snapshot's: its time and that of the one before on CLOCK_MONOTONIC, and the number of the interval
// between them.
type moment struct {
	last, now int64
	epoch     uint32
	final     bool // accounts of threads that ended hold the kernel's counts
}

// advance returns what a thread did since the last report. The thread is there if p is not nil; one that is not, and
// has not ended, is about to, or has become another: it is taken for ended the second time. It is not ok for a thread
// that began after the snapshot.
func (t *history) advance(tid uint32, a *accounts, p *present, m moment) (s spent, ok bool) {
	if int64(a.Born) >= m.now {
		return s, false
	}
	if t.born != a.Born { // a new one, or another of the same number
		*t = history{born: a.Born, at: int64(a.Born), minor: a.MinorFirst, major: a.MajorFirst,
			graphs: &graphShare{}}
	}
	ended := a.state() == gone && a.since() <= m.now || a.state() != gone && p == nil && t.absent
	t.absent = p == nil
	ns := t.spend(a, p, m, !ended && p != nil)
	lock := ns[blockedLock] + ns[futex]
	s.from, s.to, s.graphs = max(m.last, int64(a.Born)), m.now, t.graphs
	if a.state() == gone {
		s.to = min(s.to, a.since())
	}
	s.line = resource.ThreadLine{
		TID: int(tid), TGID: int(a.TGID), Comm: t.name(a, p), Ended: ended,
		OnCPUNS: ns[onCPU], RunnableWaitNS: ns[runnable], BlockedDiskNS: &ns[blockedDisk], BlockedLockNS: &lock,
		FutexNS:        &ns[futex],
		BlockedOtherNS: &ns[blockedOther], IdleNS: &ns[idle],
		Voluntary: a.Voluntary - t.voluntary, Involuntary: a.Involuntary - t.involuntary, Faults: a.Faults - t.faults,
	}
	for _, v := range ns[:gone] {
		s.line.LivedNS += v
	}
	t.voluntary, t.involuntary, t.faults = a.Voluntary, a.Involuntary, a.Faults
	t.count(&s, a, p, a.state() == gone && m.final)
	for i := range s.waits {
		s.waits[i] = uint64(a.Waits[i] - t.waits[i]) // of 32 bits each: the difference is right beyond their end
	}
	t.waits = a.Waits
	s.maxWait = a.longestWait(m.epoch)
	s.line.RunQueue = resource.NewWaitFigure(&s.waits, s.maxWait)
	return s, true
}

// name is the thread's name: its last one, or what is known of it.
func (t *history) name(a *accounts, p *present) string {
	switch {
	case a.state() != gone && p != nil:
		t.comm = p.comm
	case a.state() == gone || t.comm == "":
		t.comm = cmp.Or(a.comm(), t.comm)
	}
	return t.comm
}

// spend returns the times that are new. The state that continues counts up to now. What a thread did after now, while
// it was read, is left for the next interval, so that no interval holds more time than it has: it is taken off the
// largest times.
func (t *history) spend(a *accounts, p *present, m moment, goesOn bool) *[states]int64 {
	var d [states]int64
	for i, v := range a.NS[:gone] {
		d[i] = max(0, int64(v)-t.ns[i]) // less, if a gap was reported beyond the known times
	}
	until := a.since()
	if goesOn && until < m.now {
		gap := m.now - until
		if a.state() >= blockedDisk { // it may have been woken since
			queued := min(p.queued, gap)
			d[runnable] += queued
			gap -= queued
		}
		d[a.state()] += gap
		until = m.now
	}
	cut(&d, m.now-max(t.at, m.last))
	for i, v := range d {
		t.ns[i] += v
	}
	t.at = min(until, m.now)
	return &d
}

// cut takes off the largest of some times what they are together more than most.
func cut(d *[states]int64, most int64) {
	var sum int64
	for _, v := range d {
		sum += v
	}
	for excess := sum - max(0, most); excess > 0; {
		largest := 0
		for i, v := range d {
			if v > d[largest] {
				largest = i
			}
		}
		off := min(excess, d[largest])
		d[largest] -= off
		excess -= off
	}
}

// count takes the faults from the kernel's own counts: of a running thread, or of one whose counts were kept when it
// ended.
func (t *history) count(s *spent, a *accounts, p *present, final bool) {
	minor, major := a.Minor, a.Major
	if p != nil {
		minor, major = max(minor, p.minor), max(major, p.major)
	}
	if !final && (p == nil || !p.counted) {
		return
	}
	dMinor, dMajor := minor-min(minor, t.minor), major-min(major, t.major)
	t.minor, t.major = max(minor, t.minor), max(major, t.major)
	s.line.Minor, s.line.Major = &dMinor, &dMajor
}
