package resource

// What is not known in an interval, such as the latency of no requests or what a polled source does not provide, is nil
// and absent in the file. All percentiles of latencies are upper bounds: the largest value of the histogram's slot that
// holds the percentile.

// ProfDisk is what a block device did in an interval.
type ProfDisk struct {
	ProfHeader
	Dev           string   `json:"dev"`
	IOPS          float64  `json:"iops"`
	ThroughputBS  float64  `json:"throughput_bytes_s"`
	LatP50US      *float64 `json:"lat_p50_us,omitempty"` // from issue to completion
	LatP95US      *float64 `json:"lat_p95_us,omitempty"`
	LatP99US      *float64 `json:"lat_p99_us,omitempty"`
	QueueDepthAvg *float64 `json:"queue_depth_avg,omitempty"` // weighed by time
	QueueDepthMax *int64   `json:"queue_depth_max,omitempty"`
	Requests      uint64   `json:"requests"` // completed in the interval
	Bytes         uint64   `json:"bytes"`

	DeviceID   uint32   `json:"device_id"` // major<<20 | minor
	Reads      *uint64  `json:"reads,omitempty"`
	Writes     *uint64  `json:"writes,omitempty"`
	ReadBytes  *uint64  `json:"read_bytes,omitempty"`
	WriteBytes *uint64  `json:"write_bytes,omitempty"`
	QueueP99US *float64 `json:"queue_p99_us,omitempty"` // from insertion into the queue to issue
}

// ProfSyscall is what was done through one system call in an interval, by all watched processes. Its
// type is sync for calls whose purpose is to wait, syscall for the others. A call counts in the interval in which
// it returned.
type ProfSyscall struct {
	ProfHeader
	Syscall string `json:"syscall"`
	Count   uint64 `json:"count"`
	// Of the timed calls, from entry to return.
	LatAvgUS *float64 `json:"lat_avg_us,omitempty"`
	LatP95US *float64 `json:"lat_p95_us,omitempty"`
	LatP99US *float64 `json:"lat_p99_us,omitempty"`
	LatMaxUS *float64 `json:"lat_max_us,omitempty"`
	// Bytes that successful calls returned; of mmap, munmap and fallocate the length that they were granted.
	Bytes        uint64       `json:"bytes"`
	BytesPerCall float64      `json:"bytes_per_call"` // of successful calls
	ThroughputBS float64      `json:"throughput_bytes_s"`
	TopCallers   []ProfCaller `json:"top_callers"` // by count, at most 5

	// Op distinguishes calls with the same number: wait, wake and other for futex. Events of one name add up. Of what
	// is polled from /proc it is any: all calls that read, or write; their times, errors and open calls are not known
	// then.
	Op       string            `json:"op,omitempty"`
	LatP50US *float64          `json:"lat_p50_us,omitempty"`
	Errors   uint64            `json:"errors,omitempty"`    // absent: none, or polled
	ErrorsBy map[string]uint64 `json:"errors_by,omitempty"` // by errno's name; of a name that is not known, its number
	// ErrorClasses are sums of ErrorsBy: again (nothing there yet, time is up), interrupted, missing (no such file
	// or peer), denied, full (no room, memory or descriptor), broken (connection or device), wrong (argument or
	// descriptor), other.
	ErrorClasses map[string]uint64 `json:"error_classes,omitempty"`
	// Timed is how many of Count were timed: all but one of SampledOneOf and those that began before watching did.
	Timed uint64 `json:"timed,omitempty"`
	// SampledOneOf is N where only one of N calls was timed; times are then of that sample, and lat_total_ns is
	// scaled by count/timed.
	SampledOneOf uint32 `json:"sampled_one_of,omitempty"`
	// Open calls had not returned at the snapshot; OldestNS is how long the oldest had been running.
	Open     uint64 `json:"open,omitempty"`
	OldestNS *int64 `json:"open_oldest_ns,omitempty"`
	Callers  int    `json:"callers"` // processes that made the call
	// calls whose process found no room in the table of callers
	Evicted uint64       `json:"callers_evicted,omitempty"`
	Latency []ProfBucket `json:"latency_ns,omitempty"`
}

// ProfCaller is one process's part of a system call.
type ProfCaller struct {
	PID        int    `json:"pid"`
	Comm       string `json:"comm"`
	Count      uint64 `json:"count"`
	LatTotalNS uint64 `json:"lat_total_ns,omitempty"` // absent where none was timed
	Bytes      uint64 `json:"bytes"`

	Errors   uint64   `json:"errors,omitempty"`
	LatP50US *float64 `json:"lat_p50_us,omitempty"`
	LatP99US *float64 `json:"lat_p99_us,omitempty"`
	LatMaxUS *float64 `json:"lat_max_us,omitempty"`
}

// ProfBucket is a slot of a latency histogram; both bounds belong to it.
type ProfBucket struct {
	LowNS  uint64 `json:"low_ns"`
	HighNS uint64 `json:"high_ns"`
	Count  uint64 `json:"count"`
}

// ProfMem is what memory did in an interval.
type ProfMem struct {
	ProfHeader
	FaultsTotal uint64             `json:"page_faults_total"`
	FaultsByPID map[string]uint64  `json:"page_faults_by_pid"`
	TopThreads  []ProfFaults       `json:"top_faulting_threads"` // by faults, at most 5
	PSI         map[string]ProfPSI `json:"psi"`                  // cpu, io, memory; empty where the kernel has none
	RSSKB       *uint64            `json:"rss_kb,omitempty"`     // of all watched processes
	MajorFaults *uint64            `json:"major_faults,omitempty"`

	RSSByPID map[string]uint64 `json:"rss_kb_by_pid,omitempty"`
}

// ProfFaults are the page faults of a thread.
type ProfFaults struct {
	PID    int    `json:"pid"`
	TID    int    `json:"tid"`
	Faults uint64 `json:"faults"`

	Comm  string  `json:"comm,omitempty"`
	Major *uint64 `json:"major,omitempty"`
}

// ProfPSI is the pressure on one resource. STRAP-LLM's three figures are those of "some"; both kinds are listed apart
// next to them.
type ProfPSI struct {
	Avg10  float64 `json:"avg10"`
	Avg60  float64 `json:"avg60"`
	Avg300 float64 `json:"avg300"`

	Some *ProfStall `json:"some,omitempty"`
	Full *ProfStall `json:"full,omitempty"`
}

// ProfStall are the shares of time, in percent over 10, 60 and 300 seconds, in which some or all tasks waited, and
// the total time.
type ProfStall struct {
	Avg10   float64 `json:"avg10"`
	Avg60   float64 `json:"avg60"`
	Avg300  float64 `json:"avg300"`
	TotalUS uint64  `json:"total"`
}

// ProfSched is how threads were scheduled in an interval.
type ProfSched struct {
	ProfHeader
	// waiting that delayed threads, of all, in percent of their lifetime in the interval
	TotalOffCPUPct float64      `json:"total_off_cpu_pct"`
	Threads        []ProfThread `json:"threads"` // by off-CPU time, at most 10

	ThreadCount int   `json:"thread_count"`           // of which the ten are the first
	IdleNS      int64 `json:"total_idle_ns"`          // that threads waited for work
	UnknownNS   int64 `json:"total_futex_unknown_ns"` // and that they slept in futexes for a reason that is unknown
}

// ProfThread is one thread of ProfSched. Its off-CPU time is what its snapshot says off_cpu_ns is.
type ProfThread struct {
	TID       int      `json:"tid"`
	TGID      int      `json:"tgid"`
	Comm      string   `json:"comm"`
	OffCPUPct float64  `json:"off_cpu_pct"` // of the interval
	OffCPUNS  int64    `json:"off_cpu_ns"`
	Switches  uint64   `json:"switches"`
	RQP95US   *float64 `json:"rq_latency_p95_us,omitempty"` // from runnable to running
	RQP99US   *float64 `json:"rq_latency_p99_us,omitempty"`
	RQMaxUS   *float64 `json:"rq_latency_max_us,omitempty"`

	RunnableWaitNS int64  `json:"runnable_wait_ns"`
	BlockedDiskNS  *int64 `json:"blocked_disk_ns,omitempty"`
	BlockedLockNS  *int64 `json:"blocked_lock_ns,omitempty"`
	BlockedOtherNS *int64 `json:"blocked_other_ns,omitempty"`
	IdleNS         *int64 `json:"idle_ns,omitempty"`
	OnCPUNS        int64  `json:"oncpu_ns"`

	Role           ThreadRole `json:"role,omitempty"`
	FutexNS        *int64     `json:"futex_ns,omitempty"` // as ThreadLine has it
	FutexIdleNS    *int64     `json:"futex_idle_ns,omitempty"`
	FutexUnknownNS *int64     `json:"futex_unknown_ns,omitempty"`
}

// ProfNet is what a process did on sockets in an interval.
type ProfNet struct {
	ProfHeader
	PID  int    `json:"pid"` // 0 of retransmits whose socket no watched process has used
	Comm string `json:"comm"`
	// Bytes that socket calls took over or handed out, per second, and successful calls; a call for several
	// messages counts each.
	TXBytesS float64 `json:"tx_bytes_s"`
	RXBytesS float64 `json:"rx_bytes_s"`
	TXCalls  uint64  `json:"tx_calls"`
	RXCalls  uint64  `json:"rx_calls"`
	// Retransmits are TCP segments that were sent again, SYN and SYN-ACK included; nil if the kernel does not report
	// them.
	Retransmits *uint64 `json:"retransmits,omitempty"`

	TXBytes  uint64 `json:"tx_bytes"`
	RXBytes  uint64 `json:"rx_bytes"`
	TXErrors uint64 `json:"tx_errors"` // calls that failed, EAGAIN included
	RXErrors uint64 `json:"rx_errors"`
	// inet, inet6, unix, netlink, vsock, other; absent if the source does not know them
	Families map[string]ProfTraffic `json:"families,omitempty"`
	// sockets (sock tracepoints: every path into a socket) or syscalls
	Via string `json:"via"`
}

// ProfTraffic is the part of one address family.
type ProfTraffic struct {
	TXBytes uint64 `json:"tx_bytes"`
	RXBytes uint64 `json:"rx_bytes"`
	TXCalls uint64 `json:"tx_calls"`
	RXCalls uint64 `json:"rx_calls"`
}
