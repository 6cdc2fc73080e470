package resource

import "testing"

// What a thread's sleep in futexes was is decided by its role, and its times still add up to its life.
func TestThreadRoles(t *testing.T) {
	const ms = int64(1e6)
	known := func(n int64) GraphTime { return GraphTime{NS: n * ms, Known: true} }
	for name, c := range map[string]struct {
		onCPU, runnable, disk, fileLock, futex, idle int64 // ms
		team                                         bool
		graphs                                       GraphTime
		role                                         ThreadRole
		forWork, unknown, off                        int64
	}{
		"a worker without work": {onCPU: 1, futex: 999, role: RoleParked, forWork: 999},
		"and one that a disk delayed at last": {onCPU: 1, disk: 20, futex: 979, role: RoleParked, forWork: 979,
			off: 20},
		"a worker on a busy machine": {onCPU: 1, runnable: 500, futex: 499, role: RoleParked, forWork: 499,
			off: 500},
		"one that computes on a busy machine": {onCPU: 100, runnable: 880, futex: 20, role: RoleUnknown, unknown: 20,
			off: 880},
		"a server's loop": {onCPU: 10, idle: 980, futex: 10, role: RoleLoop, unknown: 10},
		"a worker with work now and then": {onCPU: 300, runnable: 100, futex: 600, role: RoleUnknown, unknown: 600,
			off: 100},
		"waiting for a file's lock": {fileLock: 1000, role: RoleUnknown, off: 1000},
		"a barrier within a graph": {onCPU: 400, futex: 600, team: true, graphs: known(1000),
			role: RoleCompute, off: 600},
		"between two graphs": {futex: 1000, team: true, graphs: known(0), role: RoleCompute,
			forWork: 1000},
		"a team between and within": {onCPU: 100, futex: 900, team: true, graphs: known(600),
			role: RoleCompute, off: 500, forWork: 300, unknown: 100},
		"a team that never sleeps":          {onCPU: 1000, team: true, graphs: known(900), role: RoleCompute},
		"a team whose graphs are not known": {onCPU: 500, futex: 500, team: true, role: RoleCompute, unknown: 500},
		"nothing at all":                    {role: RoleUnknown},
	} {
		lock := c.fileLock + c.futex
		l := ThreadLine{
			OnCPUNS: c.onCPU * ms, RunnableWaitNS: c.runnable * ms, BlockedDiskNS: ns(c.disk * ms),
			BlockedLockNS:  ns(lock * ms),
			BlockedOtherNS: ns(0), FutexNS: ns(c.futex * ms), IdleNS: ns(c.idle * ms),
			LivedNS: (c.onCPU + c.runnable + c.disk + lock + c.idle) * ms,
		}
		l.Judge(c.team, c.graphs)
		if l.Role != c.role || *l.FutexIdleNS != c.forWork*ms || *l.FutexUnknownNS != c.unknown*ms ||
			l.OffCPUNS() != c.off*ms {
			t.Errorf("%s: %s, for work %d, unknown %d, off %d", name, l.Role, *l.FutexIdleNS, *l.FutexUnknownNS,
				l.OffCPUNS())
		}
		if sum := l.OnCPUNS + l.OffCPUNS() + l.WorkWaitNS() + *l.FutexUnknownNS; sum != l.LivedNS {
			t.Errorf("%s: %d ns of %d", name, sum, l.LivedNS)
		}
	}
	polled := ThreadLine{LivedNS: 10, RunnableWaitNS: 3, SleepNS: ns(7)}
	if polled.Judge(false, GraphTime{}); polled.Role != RoleUnknown || polled.FutexIdleNS != nil ||
		polled.OffCPUNS() != 3 {
		t.Errorf("polled: %+v", polled)
	}
}

// The event names the threads whose waiting delayed them; what waited for work is a sum of its own.
func TestSchedOfParkedThreads(t *testing.T) {
	l := &SystemLine{}
	for tid := range int64(12) {
		th := ThreadLine{TID: int(tid), LivedNS: 1e9, RunnableWaitNS: tid, BlockedDiskNS: ns(0),
			BlockedLockNS: ns(1e9 - tid), BlockedOtherNS: ns(0), FutexNS: ns(1e9 - tid), IdleNS: ns(0)}
		if tid == 11 {
			th.OnCPUNS, th.RunnableWaitNS, th.BlockedLockNS, th.FutexNS = 7e8, 2e8, ns(1e8), ns(1e8)
		}
		th.Judge(false, GraphTime{})
		l.Threads = append(l.Threads, th)
	}
	s := l.Sched()
	if len(s.Threads) != 1 || s.Threads[0].TID != 11 || s.Threads[0].OffCPUNS != 2e8 || s.ThreadCount != 12 {
		t.Errorf("%+v", s.Threads)
	}
	const waits = 55 // for a processor, of the parked threads
	if s.IdleNS != 11e9-waits || s.UnknownNS != 1e8 || s.TotalOffCPUPct != 100*float64(2e8+waits)/12e9 {
		t.Errorf("%+v", s)
	}
}
