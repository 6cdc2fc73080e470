package resource

// ThreadLine is how one thread spent an interval. The times add up to LivedNS, which is at most the interval. A
// wait or a sleep that continues over the end of the interval counts in each with its own part.
//
// What a thread waits for is decided when it goes to sleep (resource/sched has the table): a disk, if the kernel
// counts the sleep as I/O; else by the system call that it sleeps in. A futex may be a lock or a condition variable
// on which a thread waits for work: the kernel does not know either, and both are in BlockedLockNS. The thread's
// role decides which it was (Judge). Polled from /proc, a sleep's reason is unknown: then SleepNS holds all of it
// and the four times are absent.
type ThreadLine struct {
	TID     int    `json:"tid"`
	TGID    int    `json:"tgid"` // its process
	Comm    string `json:"comm"` // its name at the snapshot, or at its end
	LivedNS int64  `json:"lived_ns"`

	OnCPUNS        int64  `json:"oncpu_ns"`
	RunnableWaitNS int64  `json:"runnable_wait_ns"` // pre-empted, or woken, and waiting for a processor
	BlockedDiskNS  *int64 `json:"blocked_disk_ns,omitempty"`
	BlockedLockNS  *int64 `json:"blocked_lock_ns,omitempty"` // futex, file lock, semaphore
	// what is neither, such as a lock within the kernel or a full pipe
	BlockedOtherNS *int64 `json:"blocked_other_ns,omitempty"`
	// in poll, accept, read of a pipe, nanosleep and the like, or stopped
	IdleNS  *int64 `json:"idle_ns,omitempty"`
	SleepNS *int64 `json:"sleep_ns,omitempty"` // the sum of the four, where they cannot be separated

	Role           ThreadRole `json:"role,omitempty"`
	FutexNS        *int64     `json:"futex_ns,omitempty"`         // the part of BlockedLockNS in futexes
	FutexIdleNS    *int64     `json:"futex_idle_ns,omitempty"`    // the part of FutexNS that waited for work
	FutexUnknownNS *int64     `json:"futex_unknown_ns,omitempty"` // the part of FutexNS of unknown reason

	Voluntary   uint64 `json:"switches_voluntary"` // switches away from it because it slept
	Involuntary uint64 `json:"switches_involuntary"`
	// absent where none ended, and where the kernel reports only their sum
	RunQueue *WaitFigure `json:"run_queue_latency,omitempty"`

	Faults uint64  `json:"page_faults"`
	Minor  *uint64 `json:"minor_faults,omitempty"` // by the kernel's own count, which includes faults in system calls
	Major  *uint64 `json:"major_faults,omitempty"`

	Ended bool `json:"ended,omitempty"` // within the interval
}

// OffCPUNS is the thread's part of SystemLine.OffCPU: waiting that delayed it. Sleep in futexes for work, or for a
// reason that is unknown, is not in it. Without BPF it is the wait for a processor alone.
func (t *ThreadLine) OffCPUNS() int64 {
	return t.RunnableWaitNS + nsOf(t.BlockedDiskNS) + t.LockDelayNS() + nsOf(t.BlockedOtherNS)
}

// LockDelayNS is the part of BlockedLockNS that delayed the thread.
func (t *ThreadLine) LockDelayNS() int64 {
	return max(0, nsOf(t.BlockedLockNS)-nsOf(t.FutexIdleNS)-nsOf(t.FutexUnknownNS))
}

// WaitFigure is the distribution of the waits that ended within an interval, in microseconds. Percentiles are upper
// bounds: the largest value of the power of two that holds them, or the longest wait if that is less.
type WaitFigure struct {
	Count   uint64   `json:"count"`
	P50     float64  `json:"p50_us"`
	P95     float64  `json:"p95_us"`
	P99     float64  `json:"p99_us"`
	Max     float64  `json:"max_us"`
	Buckets []Bucket `json:"buckets"`
}

// NewWaitFigure makes the figures of a histogram of microseconds whose largest value is known; nil for an empty one.
func NewWaitFigure(h *Histogram, maxNS uint64) *WaitFigure {
	longest := float64(maxNS) / 1e3
	if h.Total() == 0 {
		return nil
	}
	p := func(percent float64) float64 { return min(float64(h.Percentile(percent)), longest) }
	return &WaitFigure{Count: h.Total(), P50: p(50), P95: p(95), P99: p(99), Max: longest, Buckets: h.Buckets(false)}
}

// ProcessLine is a process in an interval: the sums over its threads, those included that ended in it.
type ProcessLine struct {
	PID      int         `json:"pid"`
	Comm     string      `json:"comm"`                // of its first thread
	RSSBytes *uint64     `json:"rss_bytes,omitempty"` // at the snapshot; absent of one that ended
	Threads  int         `json:"threads"`             // that were seen in the interval
	OnCPUNS  int64       `json:"oncpu_ns"`
	OffCPUNS int64       `json:"off_cpu_ns"`
	Faults   uint64      `json:"page_faults"`
	Minor    *uint64     `json:"minor_faults,omitempty"`
	Major    *uint64     `json:"major_faults,omitempty"`
	RunQueue *WaitFigure `json:"run_queue_latency,omitempty"`
}

// SystemLosses count what a snapshot lacks.
type SystemLosses struct {
	// Threads were begun in the interval and found no room; nothing of them is known.
	Threads uint64 `json:"threads"`
	// Unsteady are threads that changed while they were read, each time that it was tried: their counts stand in
	// the next line, their times of this interval in none.
	Unsteady uint64 `json:"unsteady"`
}
