package resource

import "time"

// HostHeader is what each line of a host collector begins with: STRAP-LLM's keys, and the
// interval that was measured.
type HostHeader struct {
	Timestamp float64 `json:"timestamp"`     // Unix seconds at the snapshot
	ISO       string  `json:"iso_timestamp"` // the same in UTC, ISO 8601 with the offset
	IntervalS float64 `json:"interval_s"`    // nominal: what was asked for
	// ActualS is the measured time since the snapshot before, in seconds; rates are to be taken of it.
	ActualS float64 `json:"interval_actual_s"`
	MonoNS  int64   `json:"mono_ns"` // CLOCK_MONOTONIC at the snapshot
	// Origin says how the figures were got: bpf (kernel types known), bpf_plain (tracepoints without BTF) or proc
	// (polled from /proc).
	Origin string `json:"origin"`
}

// Origins of a host line.
const (
	OriginBPF   = "bpf"
	OriginPlain = "bpf_plain"
	OriginProc  = "proc"
)

// OriginOf is the origin of what BPF programs counted; plain programs do without BTF.
func OriginOf(plain bool) string {
	if plain {
		return OriginPlain
	}
	return OriginBPF
}

// NewHostHeader fills in a header for a snapshot at now, with the time since the one before.
func NewHostHeader(now time.Time, monoNS int64, interval, actual time.Duration, origin string) HostHeader {
	return HostHeader{
		Timestamp: float64(now.UnixMicro()) / 1e6, ISO: now.UTC().Format("2006-01-02T15:04:05.000000+00:00"),
		IntervalS: interval.Seconds(), ActualS: actual.Seconds(), MonoNS: monoNS, Origin: origin,
	}
}

// Bucket is a slot of a histogram with its bounds, both inclusive.
type Bucket struct {
	Slot  int    `json:"slot"`
	Count uint64 `json:"count"`
	Low   uint64 `json:"bucket_low"`
	High  uint64 `json:"bucket_high"`
}

// SystemLine is one snapshot of processes and pressure: a line of system_metrics.jsonl.
//
// Off-CPU time is time that a thread could not compute though it had work: waiting for a processor, for a disk, for
// a lock, or blocked for another reason. Sleep that waits for work (ThreadLine.IdleNS, FutexIdleNS) is not in it,
// nor is sleep in futexes of unknown reason, and no thread has more of it than the interval is long. Threads and
// processes without any stand in no map.
type SystemLine struct {
	HostHeader
	OffCPU   map[string]int64     `json:"off_cpu_ns"`  // by thread id
	Faults   map[string]uint64    `json:"page_faults"` // by process id, from user mode; threads that ended included
	Pressure map[string]HostStall `json:"pressure"`    // cpu, io, memory; empty where the kernel has no PSI
	// CgroupPressure is the same of the target's control group of version 2; absent where it has none.
	CgroupPressure map[string]HostStall `json:"cgroup_pressure,omitempty"`
	// CgroupCPU is what a CPU quota did to a target of processes; absent where none of its control groups is seen.
	CgroupCPU *QuotaLine `json:"cgroup_cpu,omitempty"`

	// by id: those that ran, waited or faulted, and all that are there of a target of processes
	Processes []ProcessLine `json:"processes"`
	// by process and thread id: those that did anything but idle as IdleNS says
	Threads []ThreadLine `json:"threads"`
	Lost    SystemLosses `json:"lost"`
	// Missing says what could not be had and why, one sentence each.
	Missing []string `json:"missing,omitempty"`
}

// QuotaLine is what the CPU quota of a control group did in an interval, by cpu.stat of the group
// (Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst). Of several groups around the
// process that have a quota, it is the one that stopped its run queues longest.
type QuotaLine struct {
	Group     string  `json:"group,omitempty"`      // its folder; absent: no group around the process has a quota
	QuotaCPUs float64 `json:"quota_cpus,omitempty"` // quota ÷ period
	CPUs      int     `json:"cpus,omitempty"`       // that the process may run on
	Periods   uint64  `json:"periods"`              // in which the group had something to run
	Throttled uint64  `json:"throttled_periods"`    // of them, those in which it used its quota up
	// ThrottledNS is how long the group's run queues were stopped, a queue per CPU, added up over CPUs.
	ThrottledNS uint64 `json:"throttled_ns"`
}

// HostStall is what /proc/pressure says of one resource: STRAP-LLM's figures for "some" and "full".
type HostStall map[string]StallFigures

// StallFigures are the shares of time that tasks waited, in percent over 10, 60 and 300 seconds, and the total in
// microseconds.
type StallFigures struct {
	Avg10  float64 `json:"avg10"`
	Avg60  float64 `json:"avg60"`
	Avg300 float64 `json:"avg300"`
	Total  float64 `json:"total"`
}
