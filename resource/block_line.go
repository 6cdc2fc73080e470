package resource

// BlockLine is one snapshot of block devices: a line of block_io.jsonl or, as A calls it, tracepoints.jsonl.
//
// A request that a device got for a partition counts for the partition and for its disk, as in /proc/diskstats. Latency
// and Inflight contain disks only, so that their entries add up.
type BlockLine struct {
	HostHeader
	// by name; what was completed in the interval, in microseconds from issue to completion
	Latency  []DeviceLatency  `json:"latency_histogram"`
	Inflight []DeviceInflight `json:"inflight"` // by count, largest first; at the snapshot

	Devices   []BlockDevice  `json:"devices"`   // by id: disks and partitions that did anything, or have requests
	Processes []BlockProcess `json:"processes"` // by process, device and operation; empty where the figures are polled
	Cgroups   []BlockCgroup  `json:"cgroups"`   // by group, device and operation
	Lost      BlockLosses    `json:"lost"`
	// Missing says what could not be had and why, one sentence each.
	Missing []string `json:"missing,omitempty"`
}

// DeviceLatency is the latency histogram of a disk.
type DeviceLatency struct {
	DeviceID uint32   `json:"device_id"` // major<<20 | minor
	Name     string   `json:"device_name"`
	Total    uint64   `json:"total"`
	Buckets  []Bucket `json:"buckets"`
}

// DeviceInflight is how many requests a disk has been given and has not completed.
type DeviceInflight struct {
	DeviceID uint32 `json:"device_id"`
	Name     string `json:"device_name"`
	Count    int64  `json:"count"`
}

// BlockFigures are what was done of something in an interval. What is not known is nil and absent.
type BlockFigures struct {
	Requests uint64 `json:"requests"` // completed in the interval
	Bytes    uint64 `json:"bytes"`
	// ServiceNS is the time from issue to completion, QueueNS that from submission to issue, each summed over the
	// requests; TotalNS is their sum where they cannot be separated.
	ServiceNS *uint64 `json:"service_ns,omitempty"`
	QueueNS   *uint64 `json:"queue_ns,omitempty"`
	TotalNS   *uint64 `json:"total_ns,omitempty"`
	Merges    *uint64 `json:"merges,omitempty"`   // submitted, and made part of another request
	Requeues  *uint64 `json:"requeues,omitempty"` // given to the device and taken back
	Errors    *uint64 `json:"errors,omitempty"`   // of Requests
	// Unissued ended without being given to the device, after UnissuedNS in all: a flush without data waits for one
	// that the kernel issues for several. They are not in Requests.
	Unissued   *uint64 `json:"unissued,omitempty"`
	UnissuedNS *uint64 `json:"unissued_ns,omitempty"`
	// Untimed have been completed too, but their issue or their end was not seen: Bytes has theirs, Requests and
	// the histograms have not.
	Untimed  *uint64 `json:"untimed,omitempty"`
	Inflight *int64  `json:"inflight,omitempty"` // issued and not completed at the snapshot
	Waiting  *int64  `json:"waiting,omitempty"`  // submitted and not issued at the snapshot
}

// BlockDevice is what a disk or a partition did in an interval.
type BlockDevice struct {
	DeviceID uint32 `json:"device_id"`
	Name     string `json:"device_name"`
	// the name that device-mapper gives it, or the file behind a loop device
	Alias  string  `json:"alias,omitempty"`
	PartOf *uint32 `json:"part_of,omitempty"` // device_id of a partition's disk
	BlockFigures
	DepthMax  *int64    `json:"depth_max,omitempty"`  // most requests at once within the interval; of disks
	DepthMean *float64  `json:"depth_mean,omitempty"` // requests at once, weighed by time; of disks
	Ops       []BlockOp `json:"ops"`
}

// The operations of BlockOp, as the kernel's own statistics sort them: writing zeroes is a write. Other are
// passthrough and zone management.
const (
	BlockRead    = "read"
	BlockWrite   = "write"
	BlockDiscard = "discard"
	BlockFlush   = "flush"
	BlockOther   = "other"
)

// BlockOps are all operations, in the order in which they are written.
var BlockOps = []string{BlockRead, BlockWrite, BlockDiscard, BlockFlush, BlockOther}

// BlockOp is what was done of one operation. Histograms are in microseconds.
type BlockOp struct {
	Op string `json:"op"`
	BlockFigures
	Latency []Bucket    `json:"latency,omitempty"` // from issue to completion
	Queue   []Bucket    `json:"queue,omitempty"`   // from submission to issue; of devices
	Sizes   []BlockSize `json:"sizes,omitempty"`   // smallest first; of devices
}

// BlockSizeLimits are the largest sizes of the classes of BlockSize, in bytes; the last class has no limit.
var BlockSizeLimits = []uint64{0, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20}

// BlockSize are the requests of a class of sizes.
type BlockSize struct {
	UpTo     *uint64  `json:"up_to_bytes,omitempty"` // one of BlockSizeLimits; absent for what is larger
	Requests uint64   `json:"requests"`
	Latency  []Bucket `json:"latency"`
}

// BlockProcess is what was done of one operation for one process at one device: the one that submitted the
// requests. What the kernel writes back later is submitted by its own threads; see BlockCgroup.
type BlockProcess struct {
	PID      uint32 `json:"pid"`  // 0 with an empty name is all that found no room
	Comm     string `json:"comm"` // of its first thread, when it submitted
	DeviceID uint32 `json:"device_id"`
	BlockOp
}

// BlockCgroup is what was done of one operation for one control group at one device. Write-back counts for the
// group that owns the pages, where the kernel knows it.
type BlockCgroup struct {
	CgroupID uint64 `json:"cgroup_id"`
	Path     string `json:"path"` // within its hierarchy; "?" where it is gone
	DeviceID uint32 `json:"device_id"`
	BlockOp
}

// BlockLosses count what a snapshot lacks, or what was odd, each by its cause, in the interval.
type BlockLosses struct {
	Requests uint64 `json:"requests"` // found no room and were not followed
	// Processes were started by those of the target and found no room: their requests are not seen.
	Processes uint64 `json:"processes,omitempty"`
	// requests that were counted for their disk, but for no process or group: there was no room
	Rows      uint64 `json:"rows"`
	Devices   uint64 `json:"devices"`   // times that a disk found no room and was counted as device 0
	Unmatched uint64 `json:"unmatched"` // completed, but begun before the collector was
	// Orphans are requests whose end was not seen: a kernel does not run BPF programs everywhere. They are found
	// when their address is used again, or by asking the kernel for what has been there for long; those that had
	// been issued are in Untimed.
	Orphans uint64 `json:"orphans"`
	Missed  uint64 `json:"missed"` // runs of a program that were left out, because it would have interrupted itself
}

// add adds a figure to another one, which may be unknown.
func addFigure[N int64 | uint64](to **N, n *N) {
	if n == nil {
		return
	}
	if *to == nil {
		*to = new(N)
	}
	**to += *n
}

// Add adds the figures of something else.
func (f *BlockFigures) Add(g *BlockFigures) {
	f.Requests += g.Requests
	f.Bytes += g.Bytes
	addFigure(&f.ServiceNS, g.ServiceNS)
	addFigure(&f.QueueNS, g.QueueNS)
	addFigure(&f.TotalNS, g.TotalNS)
	addFigure(&f.Merges, g.Merges)
	addFigure(&f.Requeues, g.Requeues)
	addFigure(&f.Errors, g.Errors)
	addFigure(&f.Unissued, g.Unissued)
	addFigure(&f.UnissuedNS, g.UnissuedNS)
	addFigure(&f.Untimed, g.Untimed)
	addFigure(&f.Inflight, g.Inflight)
	addFigure(&f.Waiting, g.Waiting)
}
