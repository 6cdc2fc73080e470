package resource

import (
	"strconv"
	"strings"
)

// Kinds of a WaitLine. Every event is counted by one line of the kinds graph, between and phase, or by one of the
// kind interval; a total counts them all once more.
const (
	WaitGraph    = "graph"    // one execution of a graph: a token that is generated, or a micro-batch of a prompt
	WaitBetween  = "between"  // after such an execution, until the next began: sampling, the program's own work
	WaitPhase    = "phase"    // what a program does outside of all that: loading
	WaitInterval = "interval" // recorded without a tap: the time since the line before
	WaitTotal    = "total"    // the last line: all of it
)

// WaitFigures are sums over what threads waited for. All of it is measured.
type WaitFigures struct {
	// of all threads: the faults' and the calls'. Threads that wait at once count each
	WaitNS      int64  `json:"wait_ns"`
	Faults      uint64 `json:"faults"`
	Minor       uint64 `json:"faults_minor"` // as the kernel counts: no request was made for it
	Major       uint64 `json:"faults_major"`
	FaultNS     int64  `json:"fault_wait_ns"` // from entry to return
	BlockedNS   int64  `json:"blocked_ns"`    // of FaultNS: off the processor, to wait
	PreemptedNS int64  `json:"preempted_ns"`  // of FaultNS: off the processor, to make room for others
	Calls       uint64 `json:"call_waits"`    // waits for the disk in system calls: read, mmap with MAP_POPULATE
	CallNS      int64  `json:"call_wait_ns"`
	ReadBytes   uint64 `json:"read_bytes"` // read into the page cache, read-ahead included
	Requests    uint64 `json:"block_requests"`
	BlockBytes  uint64 `json:"block_bytes"`
	BlockNS     int64  `json:"block_ns"` // sum over the requests, from issue to completion; they overlap
}

// Add adds other figures.
func (f *WaitFigures) Add(o *WaitFigures) {
	f.WaitNS += o.WaitNS
	f.Faults += o.Faults
	f.Minor += o.Minor
	f.Major += o.Major
	f.FaultNS += o.FaultNS
	f.BlockedNS += o.BlockedNS
	f.PreemptedNS += o.PreemptedNS
	f.Calls += o.Calls
	f.CallNS += o.CallNS
	f.ReadBytes += o.ReadBytes
	f.Requests += o.Requests
	f.BlockBytes += o.BlockBytes
	f.BlockNS += o.BlockNS
}

// WaitLine is what was waited for while one thing was done: a line of host_waits.jsonl.
type WaitLine struct {
	Kind string `json:"kind"`
	// Of graph; for between they are those of the execution before.
	Ctx   *uint32 `json:"ctx,omitempty"`
	Exec  *uint64 `json:"exec,omitempty"`  // its number in the process, as in resource.jsonl
	Phase string  `json:"phase,omitempty"` // setup, prefill, decode, maintenance; of kind phase its name: load
	// Tokens of a graph: the number of the first in the run, how many, and, of at most 16, each.
	TokenFirst *int64      `json:"token_first,omitempty"`
	TokenCount int         `json:"token_count,omitempty"`
	Tokens     []WaitToken `json:"tokens,omitempty"`

	BeginNS    int64 `json:"begin_mono_ns"` // CLOCK_MONOTONIC
	EndNS      int64 `json:"end_mono_ns"`
	DurationNS int64 `json:"duration_ns"`

	WaitFigures
	StalledNS int64 `json:"stalled_ns"` // at least one thread waited: what the line's duration may have lost
	// Percentiles of single waits, of faults and calls: upper bounds, at most 3.2 % above the value; the largest is
	// exact.
	P50NS int64 `json:"wait_p50_ns,omitempty"`
	P95NS int64 `json:"wait_p95_ns,omitempty"`
	P99NS int64 `json:"wait_p99_ns,omitempty"`
	MaxNS int64 `json:"wait_max_ns,omitempty"`
	// Histogram counts single waits in microseconds.
	Histogram []Bucket `json:"wait_histogram_us,omitempty"`

	// Places are where it was waited for most, by WaitNS, then by BlockBytes; Others sums up those that are not
	// listed, so that Places, Others and Memory together are the line's figures.
	Places []WaitPlace `json:"places,omitempty"`
	Others *WaitOthers `json:"other_places,omitempty"`
	// Memory is what was waited for on memory that is not a file's, by kind: heap, stack, shared, anonymous.
	Memory map[string]*WaitFigures `json:"memory,omitempty"`

	FirstFaults *WaitOrder `json:"first_faults,omitempty"`
	// Of total: what was lost, by cause, and what could not be put where it belongs.
	Lost map[string]uint64 `json:"lost,omitempty"`
	// Missing names what could not be recorded on this machine, with the reason.
	Missing map[string]string `json:"missing,omitempty"`
	Origin  string            `json:"origin,omitempty"` // as in HostHeader; of total and interval
}

// WaitToken is a token of a line.
type WaitToken struct {
	Index int64 `json:"token_index"` // number in the run, from 0
	ID    int32 `json:"token_id"`    // -1: an embedding
	Pos   int32 `json:"pos"`
	Seq   int32 `json:"seq_id"` // -1: not known
}

// Parts of a GGUF that belong to no tensor.
const (
	PartHeader  = "(header)"
	PartPadding = "(padding)"
)

// FileUnknown stands for a file that could not be determined: bytes that were read past the page cache, waits in a
// system call that reads no file.
const FileUnknown = "(unknown)"

// WaitPlace is a tensor, another part of a GGUF, or another file.
type WaitPlace struct {
	File   string `json:"file"`             // path; dev:MAJOR:MINOR/ino:N where it is not known
	Tensor string `json:"tensor,omitempty"` // or (header), (padding); "" for a file that is not a GGUF
	Layer  *int   `json:"layer,omitempty"`
	WaitFigures
}

// WaitOthers sums up places that are not listed.
type WaitOthers struct {
	Count int `json:"count"`
	WaitFigures
}

// WaitOrder reports whether tensors were touched in the order in which the graph reads them, of those that faulted for
// the first time in the run.
type WaitOrder struct {
	Tensors int `json:"tensors"` // weights of the graph that were faulted for the first time
	// weights of the graph, of which there may be more than one place in it; the first counts
	Known   int  `json:"weights"`
	InOrder int  `json:"in_order"` // the most of Tensors that follow each other as in the graph
	Ordered bool `json:"ordered"`  // all of them
}

// FaultLine is one event: a line of host_faults.jsonl.
type FaultLine struct {
	Kind        string  `json:"kind"`   // fault, call, read, request
	Number      uint64  `json:"number"` // in the order in which they ended
	Exec        *uint64 `json:"exec,omitempty"`
	In          string  `json:"in"` // kind of the WaitLine that counts it
	BeginNS     int64   `json:"begin_mono_ns"`
	WaitNS      int64   `json:"wait_ns"` // read and request: how long it took
	BlockedNS   int64   `json:"blocked_ns,omitempty"`
	PreemptedNS int64   `json:"preempted_ns,omitempty"`
	PID         uint32  `json:"pid,omitempty"`
	TID         uint32  `json:"tid,omitempty"`
	Address     string  `json:"address,omitempty"` // hexadecimal
	File        string  `json:"file,omitempty"`
	Offset      *uint64 `json:"offset,omitempty"` // bytes in the file
	Bytes       uint64  `json:"bytes,omitempty"`
	Tensor      string  `json:"tensor,omitempty"`
	Memory      string  `json:"memory,omitempty"` // kind of memory that is not a file's
	Major       bool    `json:"major,omitempty"`
	FromKernel  bool    `json:"from_kernel,omitempty"` // touched in a system call
	Call        string  `json:"call,omitempty"`        // system call
}

// TensorLayer returns the layer in a weight's GGUF name, blk.N.…, or -1.
func TensorLayer(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return -1
	}
	number, _, ok := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 {
		return -1
	}
	return n
}
