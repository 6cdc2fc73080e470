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

// taken reports whether an entry of a map was refused because it exists already, or because the map is full.
func taken(err error) bool { return errors.Is(err, unix.EEXIST) || errors.Is(err, unix.E2BIG) }

// polled is what /proc said of a thread when it was last looked at.
type polled struct {
	at                     int64
	run, wait              int64 // ns, of /proc/TID/schedstat
	lineRun, lineWait      int64 // reported in lines so far
	voluntary, involuntary uint64
	minor, major           uint64
}

// poll reads all threads from /proc: how long they ran and waited for a processor, how often they were switched, their
// faults. Threads that end within the interval are not seen, and neither is their last part.
func (c *Collector) poll() ([]spent, error) {
	threads, err := c.walk.threads()
	if err != nil {
		return nil, err
	}
	c.m.epoch++
	now, boot := clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_BOOTTIME)
	if c.m.now == 0 {
		c.m.now = now
	}
	var all []spent
	// a new one: a map that entries are deleted from stays as large as it ever was
	next := make(map[threadKey]*polled, len(threads))
	for _, s := range threads {
		key := threadKey{uint32(s.tid), uint32(s.start)}
		p, err := c.walk.look(s)
		if errors.Is(err, errEmpty) {
			continue
		} else if err != nil {
			return nil, err
		}
		before := c.polled[key]
		p.at = c.m.now
		next[key] = p
		if before == nil {
			born := now - (boot - int64(s.start)*tick)
			if born < c.m.last { // it was there before, but not looked at
				p.lineRun, p.lineWait = p.run, p.wait
				continue
			}
			before = &polled{at: born}
		}
		all = append(all, p.since(before, s))
	}
	c.polled = next
	return all, nil
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
func (p *polled) since(before *polled, s stat) spent {
	lived := max(0, p.at-before.at)
	run := min(max(0, p.run-before.lineRun), lived)
	wait := min(max(0, p.wait-before.lineWait), lived-run)
	p.lineRun, p.lineWait = before.lineRun+run, before.lineWait+wait
	sleep := lived - run - wait
	minor, major := p.minor-min(p.minor, before.minor), p.major-min(p.major, before.major)
	return spent{line: resource.ThreadLine{
		TID: s.tid, TGID: s.tgid, Comm: s.comm, LivedNS: lived, OnCPUNS: run, RunnableWaitNS: wait, SleepNS: &sleep,
		Voluntary:   p.voluntary - min(p.voluntary, before.voluntary),
		Involuntary: p.involuntary - min(p.involuntary, before.involuntary),
		Minor:       &minor, Major: &major,
	}}
}

// look reads what /proc has counted for a thread.
func (w *walker) look(s stat) (*polled, error) {
	dir := fmt.Sprintf("proc/%d/task/%d/", s.tgid, s.tid)
	times, err := fs.ReadFile(w.root, dir+"schedstat")
	if err != nil {
		if _, gone := fs.Stat(w.root, dir+"stat"); gone != nil {
			return nil, errEmpty
		}
		return nil, fmt.Errorf("%w; needs a kernel with CONFIG_SCHED_INFO=y, or BPF", err)
	}
	status, err := fs.ReadFile(w.root, dir+"status")
	if err != nil {
		return nil, errEmpty
	}
	p := &polled{minor: s.minor, major: s.major}
	if _, err := fmt.Sscan(string(times), &p.run, &p.wait); err != nil {
		return nil, fmt.Errorf("read %sschedstat: %.40q: %w", dir, times, err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		into := map[string]*uint64{"voluntary_ctxt_switches": &p.voluntary,
			"nonvoluntary_ctxt_switches": &p.involuntary}[key]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseUint(strings.TrimSpace(value), 10, 64); err != nil {
			return nil, fmt.Errorf("read %sstatus: %.40q: %w", dir, line, err)
		}
	}
	return p, nil
}
