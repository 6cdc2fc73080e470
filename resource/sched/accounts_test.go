package sched

import (
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// enter is thread_enter of account.h.
func (a *accounts) enter(now uint64, state int) {
	since := a.Mark >> stateBits
	now = max(now, since)
	a.NS[a.state()] += now - since
	a.Mark = now<<stateBits | uint64(state)
}

func begun(now uint64, state int) *accounts {
	return &accounts{Born: now, Mark: now<<stateBits | uint64(state), TGID: 7}
}

var there = &present{tgid: 7, comm: "work"}

// A gap that is open at a snapshot counts with its part in each interval.
func TestGapIsSplit(t *testing.T) {
	a, history := begun(1000, onCPU), &history{}
	a.enter(1500, blockedLock)
	s, ok := history.advance(9, a, there, moment{last: 0, now: 2000, epoch: 1})
	if !ok || s.line.OnCPUNS != 500 || *s.line.BlockedLockNS != 500 || s.line.LivedNS != 1000 || s.line.TID != 9 ||
		s.line.Comm != "work" {
		t.Errorf("first %+v", s.line)
	}
	a.enter(2600, runnable)
	a.enter(2700, onCPU)
	s, _ = history.advance(9, a, there, moment{last: 2000, now: 3000, epoch: 2})
	if *s.line.BlockedLockNS != 600 || s.line.RunnableWaitNS != 100 || s.line.OnCPUNS != 300 ||
		s.line.LivedNS != 1000 || s.line.OffCPUNS() != 700 {
		t.Errorf("second %+v, lock %d", s.line, *s.line.BlockedLockNS)
	}
	s, _ = history.advance(9, a, there, moment{last: 3000, now: 4000, epoch: 3})
	if s.line.OnCPUNS != 1000 || *s.line.BlockedLockNS != 0 {
		t.Errorf("third %+v", s.line)
	}
}

// What a thread does while snapshots are read belongs to the next interval, and nothing is reported twice or never,
// whatever happens when.
func TestIntervalsAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a, history := begun(uint64(random.IntN(2000)), random.IntN(gone)), &history{}
		var sum [gone]int64
		last, clock := int64(0), int64(a.Born)
		for epoch := range uint32(20) {
			now := last + 1000
			for clock < now+int64(random.IntN(400)) { // up to 400 ns after the snapshot's moment
				clock += int64(random.IntN(300))
				a.enter(uint64(clock), random.IntN(gone))
			}
			s, ok := history.advance(1, a, there, moment{last: last, now: now, epoch: epoch})
			if ok != (int64(a.Born) < now) {
				t.Fatalf("born %d, snapshot %d: %v", a.Born, now, ok)
			}
			if ok {
				lived := now - max(last, int64(a.Born))
				if s.line.LivedNS != lived {
					t.Fatalf("interval of %d ns holds %d", lived, s.line.LivedNS)
				}
				for i, ns := range []int64{s.line.OnCPUNS, s.line.RunnableWaitNS, *s.line.BlockedDiskNS,
					*s.line.BlockedLockNS, *s.line.BlockedOtherNS, *s.line.IdleNS} {
					sum[i] += ns
				}
			}
			last = now
		}
		a.enter(uint64(clock), gone)
		s, _ := history.advance(1, a, nil, moment{last: last, now: last + 1000, epoch: 99})
		for i, ns := range []int64{s.line.OnCPUNS, s.line.RunnableWaitNS, *s.line.BlockedDiskNS, *s.line.BlockedLockNS,
			*s.line.BlockedOtherNS, *s.line.IdleNS} {
			// The figures of a line, by the states that they hold: a lock is a futex or another one.
			want := int64(0)
			for _, state := range [][]int{{onCPU}, {runnable}, {blockedDisk}, {blockedLock, futex}, {blockedOther},
				{idle}}[i] {
				want += int64(a.NS[state])
			}
			if sum[i] += ns; sum[i] != want {
				t.Fatalf("figure %d: reported %d ns of %d", i, sum[i], want)
			}
		}
		if !s.line.Ended {
			t.Fatal("it has not ended")
		}
	}
}

// A thread that is not listed though it has not ended is about to, or has become another. The first time it goes
// on, without the time that is not known; the second time it has ended.
func TestAbsentThread(t *testing.T) {
	a, history := begun(100, onCPU), &history{}
	a.enter(500, runnable)
	s, ok := history.advance(1, a, nil, moment{last: 0, now: 1000})
	if !ok || s.line.Ended || s.line.LivedNS != 400 {
		t.Errorf("first %+v", s.line)
	}
	ends := *a
	ends.enter(1005, gone)
	again := *history
	if s, _ := again.advance(1, &ends, nil, moment{last: 1000, now: 2000}); !s.line.Ended || s.line.LivedNS != 505 {
		t.Errorf("it ended %+v", s.line)
	}
	if s, _ := history.advance(1, a, nil, moment{last: 1000, now: 2000}); !s.line.Ended || s.line.LivedNS != 0 ||
		s.active() {
		t.Errorf("second %+v", s.line)
	}
}

// One that ends while it is read has not ended at the snapshot: the next reports that, once.
func TestEndWhileRead(t *testing.T) {
	a, history := begun(100, onCPU), &history{}
	a.enter(1010, gone)
	if s, _ := history.advance(1, a, there, moment{last: 0, now: 1000}); s.line.Ended || s.line.LivedNS != 900 {
		t.Errorf("first %+v", s.line)
	}
	if s, _ := history.advance(1, a, nil, moment{last: 1000, now: 2000}); !s.line.Ended || s.line.LivedNS != 10 {
		t.Errorf("second %+v", s.line)
	}
}

// A thread that was woken and waits at a snapshot has waited since its waking, as the kernel says, not since it was
// last seen.
func TestWaitThatIsNotSeen(t *testing.T) {
	a, history := begun(100, onCPU), &history{}
	a.enter(200, blockedDisk)
	s, _ := history.advance(1, a, &present{queued: 300}, moment{last: 0, now: 1000})
	if s.line.RunnableWaitNS != 300 || *s.line.BlockedDiskNS != 500 || s.line.LivedNS != 900 {
		t.Errorf("first %+v", s.line)
	}
	a.enter(1400, onCPU) // it was queued for 750 ns: the report at 1000 was 50 short
	a.NS[blockedDisk] -= 750
	a.NS[runnable] += 750
	s, _ = history.advance(1, a, there, moment{last: 1000, now: 2000})
	if s.line.LivedNS != 1000 || s.line.RunnableWaitNS != 450 || *s.line.BlockedDiskNS != 0 {
		t.Errorf("second %+v", s.line)
	}
}

// Another thread of the same number begins anew.
func TestNumberUsedAgain(t *testing.T) {
	first, history := begun(100, onCPU), &history{}
	first.Faults, first.Minor = 9, 50
	before, _ := history.advance(1, first, there, moment{now: 1000})
	second := begun(1200, runnable)
	second.Faults, second.MinorFirst = 2, 1
	s, _ := history.advance(1, second, &present{counted: true, minor: 4, comm: "new"}, moment{last: 1000, now: 2000})
	if s.line.LivedNS != 800 || s.line.Faults != 2 || *s.line.Minor != 3 || s.line.Comm != "new" ||
		s.graphs == before.graphs {
		t.Errorf("%+v", s.line)
	}
}

func TestKernelCounts(t *testing.T) {
	a, history := begun(100, onCPU), &history{}
	a.MinorFirst, a.MajorFirst = 10, 1
	p := &present{counted: true, minor: 15, major: 3, comm: "w"}
	if s, _ := history.advance(1, a, p, moment{now: 1000}); *s.line.Minor != 5 || *s.line.Major != 2 {
		t.Errorf("first %d %d", *s.line.Minor, *s.line.Major)
	}
	a.enter(1500, gone)
	a.Minor, a.Major = 22, 3
	copy(a.Comm[:], "late")
	if s, _ := history.advance(1, a, p, moment{last: 1000, now: 2000, final: true}); *s.line.Minor != 7 ||
		*s.line.Major != 0 || s.line.Comm != "late" {
		t.Errorf("end %d %d %s", *s.line.Minor, *s.line.Major, s.line.Comm)
	}
}

func TestUnknownCounts(t *testing.T) {
	history := &history{}
	if s, _ := history.advance(1, begun(5, onCPU), &present{comm: "w"}, moment{now: 9}); s.line.Minor != nil {
		t.Error("counts that nobody knows")
	}
}

// The longest wait of an interval is of that interval alone, though the next has begun.
func TestLongestWait(t *testing.T) {
	a := &accounts{WaitEpoch: 5, WaitMax: 10, WaitEpochBefore: 3, WaitMaxBefore: 99}
	for epoch, want := range map[uint32]uint64{5: 10, 4: 0, 3: 99, 6: 0} {
		if got := a.longestWait(epoch); got != want {
			t.Errorf("interval %d: %d, want %d", epoch, got, want)
		}
	}
}

// A thread that was busy for half of the time or more in which graphs were computed belongs to their team from then
// on, also while none is.
func TestComputeTeam(t *testing.T) {
	team, other := &graphShare{}, &graphShare{}
	role := func(of *graphShare, busy, asleep int64, c resource.GraphTime) (resource.ThreadRole, int64) {
		zero, lock := int64(0), asleep
		s := spent{graphs: of, line: resource.ThreadLine{
			LivedNS: busy + asleep, OnCPUNS: busy / 2, RunnableWaitNS: busy - busy/2, BlockedLockNS: &lock,
			FutexNS: &lock, IdleNS: &zero,
		}}
		s.assignRole(c)
		return s.line.Role, s.line.LockDelayNS()
	}
	graphs := func(ns int64) resource.GraphTime { return resource.GraphTime{NS: ns, Known: true} }
	for i, c := range []struct {
		of           *graphShare
		busy, asleep int64
		graphs       resource.GraphTime
		role         resource.ThreadRole
		delay        int64
	}{
		{team, 900, 100, graphs(0), resource.RoleUnknown, 0}, // loads the model
		{team, 600, 400, graphs(1000), resource.RoleCompute, 400},
		{team, 100, 900, graphs(150), resource.RoleCompute, 50},
		{team, 0, 1000, graphs(0), resource.RoleCompute, 0},
		{team, 500, 500, resource.GraphTime{}, resource.RoleCompute, 0},
		{other, 300, 700, graphs(1000), resource.RoleUnknown, 0},
		{other, 10, 990, graphs(1000), resource.RoleParked, 0},
		{nil, 900, 100, graphs(1000), resource.RoleUnknown, 0},
	} {
		if role, delay := role(c.of, c.busy, c.asleep, c.graphs); role != c.role || delay != c.delay {
			t.Errorf("%d: %s, delayed for %d, want %s, %d", i, role, delay, c.role, c.delay)
		}
	}
}

// The tap's own thread computes nothing, however long it waits for a processor beside the model.
func TestComputeTeamWithoutTheTap(t *testing.T) {
	for name, want := range map[string]resource.ThreadRole{
		"llama-server": resource.RoleCompute, resource.TapThread: resource.RoleUnknown,
	} {
		s := spent{graphs: &graphShare{}, line: resource.ThreadLine{Comm: name, LivedNS: 1000, RunnableWaitNS: 1000}}
		if s.assignRole(resource.GraphTime{NS: 1000, Known: true}); s.line.Role != want {
			t.Errorf("%s: %s, want %s", name, s.line.Role, want)
		}
	}
}

// A thread that lived for a part of an interval is judged by the graphs of that part: one that was busy before them,
// such as while the model was loaded, computed none.
func TestComputeTeamOfShortLives(t *testing.T) {
	computed := func(from, to int64) resource.GraphTime { // a graph from 600 to 800
		return resource.GraphTime{NS: max(0, min(to, 800)-max(from, 600)), Known: true}
	}
	for _, c := range []struct {
		born, ended uint64 // 0: it goes on
		role        resource.ThreadRole
	}{{100, 500, resource.RoleUnknown}, {550, 700, resource.RoleCompute}, {810, 0, resource.RoleUnknown},
		{500, 0, resource.RoleCompute}} {
		a, history, p := begun(c.born, onCPU), &history{}, there
		if c.ended > 0 {
			a.enter(c.ended, gone)
			p = nil
		}
		s, _ := history.advance(1, a, p, moment{last: 0, now: 1000})
		all := []spent{s}
		if assignRoles(all, 0, 1000, computed); all[0].line.Role != c.role {
			t.Errorf("from %d to %d: %s, want %s", c.born, c.ended, all[0].line.Role, c.role)
		}
	}
}

func TestSteady(t *testing.T) {
	a := begun(100, idle)
	a.enter(900, onCPU)
	torn := *a
	torn.NS[idle] -= 8
	if !a.steady() || torn.steady() {
		t.Errorf("steady %v, torn %v", a.steady(), torn.steady())
	}
}
