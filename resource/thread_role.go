package resource

// ThreadRole is what a thread was doing in an interval, as far as measurements show. It decides what its sleep in
// futexes was.
type ThreadRole string

// The roles of threads.
const (
	// RoleCompute is a thread that was busy for half of the time or more in which graphs of the run were computed. The
	// tap's own are none.
	RoleCompute ThreadRole = "compute"
	// RoleParked is a thread that slept voluntarily for at least 95 % of the interval, its waits for a processor
	// left out, mostly in futexes.
	RoleParked ThreadRole = "parked"
	// RoleLoop is the same of a thread that slept mostly in poll, accept, nanosleep and the like: a server's loop,
	// a timer.
	RoleLoop ThreadRole = "loop"
	// RoleUnknown is any other thread.
	RoleUnknown ThreadRole = "unknown"
)

// TapThread is the name of the tap's own threads in the model's process (tap_aside.c). They compute nothing of it. One
// of them runs only when nobody else wants to: on a busy machine it waits for a processor all the time.
const TapThread = "llamatap-tap"

// parkedPercent is the share of its time that a thread that waits for work sleeps voluntarily.
const parkedPercent = 95

// GraphTime is how much of an interval graphs of the run were computed in. Known is false where there is no run, or
// that is not known.
type GraphTime struct {
	NS    int64
	Known bool
}

// Judge decides the thread's role, and which part of FutexNS it waited for work (FutexIdleNS), and which part nobody
// knows the reason of (FutexUnknownNS). The rest delayed it. team reports whether the thread computes graphs of the
// run:
//
//   - a wait of such a thread while no graph was computed is for work, and one within a graph delays it. What is
//     certain by the sums of the interval is decided, the rest is unknown
//   - a parked thread waited for work
//   - of any other thread the reason is unknown: of one in a loop, too, whose waits for work are in other calls
//
// Where sleeps have no reason (polled from /proc) nothing is decided.
func (t *ThreadLine) Judge(team bool, c GraphTime) {
	t.Role, t.FutexIdleNS, t.FutexUnknownNS = RoleUnknown, nil, nil
	if team {
		t.Role = RoleCompute
	}
	if t.FutexNS == nil || t.IdleNS == nil {
		return
	}
	futex, idle, unknown := *t.FutexNS, int64(0), int64(0)
	switch asleep := futex + *t.IdleNS; {
	case team && c.Known:
		within := max(0, futex-max(0, t.LivedNS-c.NS)) // more than there is time outside of graphs
		idle = max(0, futex-c.NS)                      // more than there is time within graphs
		unknown = max(0, futex-within-idle)
	case team:
		unknown = futex
	case asleep == 0 || float64(asleep) < float64(t.LivedNS-t.RunnableWaitNS)*parkedPercent/100:
		unknown = futex
	case futex < *t.IdleNS:
		t.Role, unknown = RoleLoop, futex
	default:
		t.Role, idle = RoleParked, futex
	}
	t.FutexIdleNS, t.FutexUnknownNS = &idle, &unknown
}

// WorkWaitNS is how long the thread waited for work.
func (t *ThreadLine) WorkWaitNS() int64 { return nsOf(t.IdleNS) + nsOf(t.FutexIdleNS) }

func nsOf(ns *int64) int64 {
	if ns == nil {
		return 0
	}
	return *ns
}
