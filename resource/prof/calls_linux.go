package prof

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// topCallers is how many processes an event names at most.
const topCallers = 5

// caller is struct caller of prof.bpf.c.
type caller struct{ TGID, Call uint32 }

// callStat is struct call_stat of calls.h.
type callStat struct {
	Count, Errors, Bytes, Timed, NS uint64
	Longest, LongestBefore          uint64
	Interval, IntervalBefore        uint32
	Latency                         [latencySlots]uint32
	Begun                           uint64
}

// readStable reads an entry again while a processor was writing its counters during the read. Writing takes less than a
// microsecond, so that this ends.
func readStable[K any](m *ebpf.Map, key K, stats []callStat) ([]callStat, error) {
	for range 1000 {
		if !slices.ContainsFunc(stats, func(s callStat) bool { return s.Begun != s.Count }) {
			break
		}
		if err := m.Lookup(key, &stats); err != nil {
			return nil, fmt.Errorf("read BPF map %s: %w", m, err)
		}
	}
	return stats, nil
}

// open is struct open of prof.bpf.c.
type open struct {
	Word, Argument uint64
	TGID           uint32
	FD             int32
}

// sum adds the processors' counters up. ended is the interval that the longest is of.
func sum(stats []callStat, ended uint32) tally {
	var t tally
	for i := range stats {
		s := &stats[i]
		var longest uint64
		switch {
		case s.Interval == ended:
			longest = s.Longest
		case s.IntervalBefore == ended: // a call of the interval that has begun came already
			longest = s.LongestBefore
		}
		t.add(&tally{s.Count, s.Errors, s.Bytes, s.Timed, s.NS, longest, s.Latency})
	}
	return t
}

// A callers is what the processes did through one call in an interval.
type callers struct {
	all      tally
	by       []resource.ProfCaller
	evicted  uint64
	open     uint64
	oldestNS int64
	errors   map[int]uint64 // by slot
}

// callCounter reads the programs' counters of system calls.
type callCounter struct {
	set     *bpf.Set
	wanted  map[resource.ProfType]bool
	sampled uint32 // Options.SampledOneOf
	calls   map[caller]tally
	others  [callSlots]tally
	evicted uint64 // calls in others
	errnos  [callSlots][errnoSlots]uint64
}

// events returns an event for each call that returned or is open.
func (c *callCounter) events(ended uint32, length time.Duration, mono int64,
	names map[uint32]string) ([]resource.ProfEvent, error) {
	var all [callSlots]callers
	err := errors.Join(c.readCallers(&all, ended, names), c.readOthers(&all, ended), c.readOpen(&all, mono))
	if err == nil {
		err = c.readErrors(&all)
	}
	if err != nil {
		return nil, err
	}
	var events []resource.ProfEvent
	for i := 1; i < len(calls); i++ {
		if all[i].all.count > 0 || all[i].open > 0 {
			events = append(events, all[i].event(calls[i], length, c.sampled))
		}
	}
	return events, nil
}

// readCallers reads what each process did. What an ended process did is read a last time, for now it is all, and
// removed.
func (c *callCounter) readCallers(all *[callSlots]callers, ended uint32, names map[uint32]string) error {
	m := c.set.Map("calls")
	now := map[caller]tally{}
	var failed error
	err := bpf.EachPerCPU(m, func(k caller, stats []callStat) {
		stats, err := readStable(m, k, stats)
		failed = cmp.Or(failed, err)
		now[k] = sum(stats, ended)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	gone := map[uint32]bool{}
	for k, t := range now {
		if _, known := gone[k.TGID]; !known {
			gone[k.TGID] = processEnded(k.TGID)
		}
		if gone[k.TGID] {
			var last []callStat
			if err := m.Lookup(k, &last); err != nil {
				return fmt.Errorf("read BPF map calls: %w", err)
			}
			t = sum(last, ended)
			if err := remove(m, k); err != nil {
				return err
			}
		}
		before := c.calls[k]
		if now[k] = t; gone[k.TGID] {
			delete(now, k)
		}
		d := t.since(&before)
		if d.count == 0 || int(k.Call) >= len(calls) {
			continue
		}
		here := &all[k.Call]
		here.all.add(&d)
		here.by = append(here.by, d.caller(int(k.TGID), name(names, k.TGID)))
	}
	c.calls = now
	return nil
}

// readOthers reads what was counted without its process.
func (c *callCounter) readOthers(all *[callSlots]callers, ended uint32) error {
	evicted, err := bpf.Sum(c.set.Map("lost"), lostCaller)
	if err != nil || evicted == c.evicted {
		return err
	}
	c.evicted = evicted
	for i := 1; i < len(calls); i++ {
		var stats []callStat
		m := c.set.Map("others")
		if err := m.Lookup(uint32(i), &stats); err != nil {
			return fmt.Errorf("read BPF map others: %w", err)
		}
		if stats, err = readStable(m, uint32(i), stats); err != nil {
			return err
		}
		t := sum(stats, ended)
		d := t.since(&c.others[i])
		c.others[i] = t
		if d.count > 0 {
			all[i].all.add(&d)
			all[i].evicted = d.count
		}
	}
	return nil
}

// readOpen reads the calls that have not returned.
func (c *callCounter) readOpen(all *[callSlots]callers, mono int64) error {
	return bpf.Each(c.set.Map("opens"), func(_ uint32, o open) {
		which := int(o.Word % callSlots)
		if which == 0 || which >= len(calls) || !c.wanted[calls[which].kind()] {
			return
		}
		all[which].open++
		all[which].oldestNS = max(all[which].oldestNS, mono-int64(o.Word>>7))
	})
}

// readErrors reads which errors the calls returned that did.
func (c *callCounter) readErrors(all *[callSlots]callers) error {
	for i := range all {
		if all[i].all.errors == 0 {
			continue
		}
		var processors [][errnoSlots]uint64
		if err := c.set.Map("errnos").Lookup(uint32(i), &processors); err != nil {
			return fmt.Errorf("read BPF map errnos: %w", err)
		}
		all[i].errors = map[int]uint64{}
		for slot := range errnoSlots {
			var now uint64
			for _, p := range processors {
				now += p[slot]
			}
			if n := now - c.errnos[i][slot]; n > 0 {
				all[i].errors[slot] = n
			}
			c.errnos[i][slot] = now
		}
	}
	return nil
}

// event makes the event of a call.
func (c *callers) event(of call, length time.Duration, sampled uint32) *resource.ProfSyscall {
	e := c.all.event(of, length)
	slices.SortFunc(c.by, func(a, b resource.ProfCaller) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.LatTotalNS, a.LatTotalNS), cmp.Compare(a.PID, b.PID))
	})
	e.Callers, e.Evicted = len(c.by), c.evicted
	e.TopCallers = append(e.TopCallers, c.by[:min(topCallers, len(c.by))]...)
	if of.sampled && sampled > 1 {
		e.SampledOneOf = sampled
	}
	if e.Open = c.open; c.open > 0 {
		e.OldestNS = &c.oldestNS
	}
	for slot, n := range c.errors {
		if e.ErrorsBy == nil {
			e.ErrorsBy, e.ErrorClasses = map[string]uint64{}, map[string]uint64{}
		}
		e.ErrorsBy[errnoName(slot)] += n
		e.ErrorClasses[errnoClass(slot)] += n
	}
	return e
}

// name is the name of a process. One that ended long ago has none.
func name(names map[uint32]string, tgid uint32) string {
	if n, ok := names[tgid]; ok {
		return n
	}
	if firstNamespace() { // no room was left for it
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tgid)); err == nil {
			return strings.TrimSuffix(string(text), "\n")
		}
	}
	return "(ended)"
}
