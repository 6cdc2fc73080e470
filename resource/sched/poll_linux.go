package sched

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
)

// polled is what /proc said of a thread when it was last looked at.
type polled struct {
	at                     int64
	run, wait              int64 // ns, of /proc/TID/schedstat
	lineRun, lineWait      int64 // reported in lines so far
	voluntary, involuntary uint64
	minor, major           uint64
}

// poller reads what threads did from /proc.
type poller struct {
	*walker
	polled map[threadKey]*polled
}

// read reads all threads from /proc: how long they ran and waited for a processor, how often they were switched, their
// faults. Threads that end within the interval are not seen, and neither is their last part.
func (p *poller) read(m moment) ([]spent, error) {
	threads, err := p.threads()
	if err != nil {
		return nil, err
	}
	now, boot := clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_BOOTTIME)
	var threadTimes []spent
	// a new one: a map that entries are deleted from stays as large as it ever was
	next := make(map[threadKey]*polled, len(threads))
	for _, s := range threads {
		key := threadKey{uint32(s.ID), uint32(s.Start)}
		one, err := p.readTask(s)
		if errors.Is(err, errEmpty) {
			continue
		} else if err != nil {
			return nil, err
		}
		before := p.polled[key]
		one.at = m.now
		next[key] = one
		if before == nil {
			born := now - (boot - int64(s.Start)*tick)
			if born < m.last { // it was there before, but not looked at
				one.lineRun, one.lineWait = one.run, one.wait
				continue
			}
			before = &polled{at: born}
		}
		threadTimes = append(threadTimes, one.since(before, s))
	}
	p.polled = next
	return threadTimes, nil
}

// tick is the unit of times in /proc/PID/stat, USER_HZ, in ns: 100 Hz wherever Linux runs here.
const tick = 1e7

func clock(id int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t) // cannot fail with these clocks
	return t.Nano()
}

// since returns what a thread did between two looks. The kernel counts a wait when it ends, and computing from time
// to time: what is more than the interval holds is left for the next.
func (p *polled) since(before *polled, s task) spent {
	lived := max(0, p.at-before.at)
	run := min(max(0, p.run-before.lineRun), lived)
	wait := min(max(0, p.wait-before.lineWait), lived-run)
	p.lineRun, p.lineWait = before.lineRun+run, before.lineWait+wait
	sleep := lived - run - wait
	minor, major := p.minor-min(p.minor, before.minor), p.major-min(p.major, before.major)
	return spent{line: resource.ThreadLine{
		TID: s.ID, TGID: s.tgid, Comm: s.Name, LivedNS: lived, OnCPUNS: run, RunnableWaitNS: wait, SleepNS: &sleep,
		Voluntary:   p.voluntary - min(p.voluntary, before.voluntary),
		Involuntary: p.involuntary - min(p.involuntary, before.involuntary),
		Minor:       &minor, Major: &major,
	}}
}

// readTask reads what /proc has counted for a thread.
func (p *poller) readTask(s task) (*polled, error) {
	dir := fmt.Sprintf("proc/%d/task/%d/", s.tgid, s.ID)
	times, err := fs.ReadFile(p.root, dir+"schedstat")
	if err != nil {
		if _, gone := fs.Stat(p.root, dir+"stat"); gone != nil {
			return nil, errEmpty
		}
		return nil, fmt.Errorf("%w; needs a kernel with CONFIG_SCHED_INFO=y, or BPF", err)
	}
	status, err := fs.ReadFile(p.root, dir+"status")
	if err != nil {
		return nil, errEmpty
	}
	one := &polled{minor: s.Own.Minor, major: s.Own.Major}
	if _, err := fmt.Sscan(string(times), &one.run, &one.wait); err != nil {
		return nil, fmt.Errorf("read %sschedstat: %.40q: %w", dir, times, err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		into := map[string]*uint64{"voluntary_ctxt_switches": &one.voluntary,
			"nonvoluntary_ctxt_switches": &one.involuntary}[key]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseUint(strings.TrimSpace(value), 10, 64); err != nil {
			return nil, fmt.Errorf("read %sstatus: %.40q: %w", dir, line, err)
		}
	}
	return one, nil
}
