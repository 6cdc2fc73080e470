//go:build linux

package collect

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
	"golang.org/x/sys/unix"
)

const headerBytes = uint64(unsafe.Sizeof(shmHeader{}))

// TapBuild is what the symbol tap_build of a tap says that this collector understands: the version of the shared
// memory and the size of its header.
func TapBuild() [2]uint32 { return [2]uint32{shmVersion, uint32(headerBytes)} }

// Region is the memory shared with one model process. Its methods may be called from several goroutines.
type Region struct {
	file   *os.File
	life   [2]*os.File // a pipe that nobody writes to: its other end shows the model's process that this one is gone
	mem    []byte
	header *shmHeader
	plan   plan // the header repeats it for the tap; a model that scribbles over the header must not mislead us
	lanes  returnLane
	wishes wishes
}

// NewRegion makes the memory and writes down what the tap shall record. The caller closes it.
func NewRegion(o Options) (*Region, error) {
	p, err := o.plan()
	if err != nil {
		return nil, err
	}
	file, err := makeMemory(p.size)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(p.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("map %d bytes of shared memory: %w; give a smaller --tap-memory, or raise the limit of address space (ulimit -v)", p.size, err)
	}
	r := &Region{file: file, mem: mem, header: (*shmHeader)(unsafe.Pointer(&mem[0])), plan: p}
	if r.life[0], r.life[1], err = os.Pipe(); err != nil {
		r.Close()
		return nil, fmt.Errorf("make the pipe to the model's process: %w", err)
	}
	h := r.header
	h.HeaderBytes = uint32(headerBytes)
	h.TotalBytes = p.size
	h.QueueOffset, h.QueueBytes = p.queueOffset, p.queueBytes
	h.RingOffset, h.RingEntries = p.ringOffset, p.ringEntries
	h.SlotsOffset, h.SlotBytes, h.NSlots = p.slotsOffset, SlotBytes, p.slots
	if err := fillConfig(&h.Config, o); err != nil {
		r.Close()
		return nil, err
	}
	h.Version = shmVersion
	h.Magic = shmMagic
	return r, nil
}

// makeMemory makes the memory's file. What forbids it is a limit or a sandbox, and the error says which.
func makeMemory(size uint64) (*os.File, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < size {
		return nil, fmt.Errorf("make %d bytes of shared memory: files may have %d bytes here; raise the limit (ulimit -f), or give a smaller --tap-memory", size, limit.Cur)
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("llamatap", flags|unix.MFD_NOEXEC_SEAL) // some machines allow no other
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("llamatap", flags) // kernels before 6.3
	}
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w; something (a sandbox, seccomp) forbids memfd_create, which the tap cannot do without: allow it, or run outside of it", err)
	}
	file := os.NewFile(uintptr(fd), "llamatap-shm")
	if err := file.Truncate(int64(size)); err != nil {
		file.Close()
		return nil, fmt.Errorf("size shared memory to %d bytes: %w; give a smaller --tap-memory", size, err)
	}
	// A model that cut the file short would kill us with SIGBUS.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		file.Close()
		return nil, fmt.Errorf("fix the size of shared memory: %w", err)
	}
	return file, nil
}

func fillConfig(c *shmConfig, o Options) error {
	if err := fillSelection(&c.Start, o.Start); err != nil {
		return err
	}
	c.Overflow = uint32(o.Overflow)
	c.CollectorPID = int32(os.Getpid())
	if o.StopOnFailure {
		c.OnFailure = failureStop
	}
	c.Exact = 1
	if o.Cold {
		c.Cold = 1
	}
	if o.InStep {
		c.InStep = 1
	}
	if o.Judge {
		c.Judge = 1
	}
	c.Turns = o.Turns
	if len(o.Backends) >= pathSize {
		return fmt.Errorf("the path of the backends has %d bytes: at most %d can be used", len(o.Backends), pathSize-1)
	}
	copy(c.Backends[:], o.Backends)
	return nil
}

// File is the memfd to pass on to the model's process. It stays the Region's.
func (r *Region) File() *os.File { return r.file }

// PoolBytes is the size of the slot pool.
func (r *Region) PoolBytes() int64 { return int64(r.plan.slots * SlotBytes) }

// Size is the size of the whole shared memory.
func (r *Region) Size() int64 { return int64(len(r.mem)) }

// Life is the pipe to pass on beside File: it ends with this process. It stays the Region's.
func (r *Region) Life() *os.File { return r.life[0] }

// Close informs processes that are still there that nothing is recorded any more, and unmaps the memory. No lease may
// be in use.
func (r *Region) Close() error {
	if r.mem == nil {
		return nil
	}
	r.Stop()
	err := unix.Munmap(r.mem)
	r.mem, r.header = nil, nil
	for _, end := range r.life {
		if end != nil {
			err = errors.Join(err, end.Close())
		}
	}
	return errors.Join(err, r.file.Close())
}

// Attached reports whether the tap has joined (1) and said goodbye (2).
func (r *Region) Attached() int { return int(atomic.LoadUint32(&r.header.Attached)) }

// Stop informs the tap that nothing is recorded any more. A model that waits for room continues.
func (r *Region) Stop() { r.end(tapClosed) }

// Count makes the tap take in no more tensors, and count them: graphs are reported, and what is wanted of them is
// lost, by the cause [LossStopped]. A model that waits for room in the pool goes on.
func (r *Region) Count() { r.end(tapCounts) }

func (r *Region) end(how uint32) {
	atomic.StoreUint32(&r.header.Closed, how)
	atomic.AddUint32(&r.header.Room, 1)
	futex(&r.header.Room, futexWake, 1<<30, nil)
}

// Moved is a number that grows with what passes through the shared memory, and whether a thread of the model waits
// for room in it.
func (r *Region) Moved() (moved uint64, modelWaits bool) {
	h := r.header
	return atomic.LoadUint64(&h.QueueHead) + atomic.LoadUint64(&h.QueueTail) + atomic.LoadUint64(&h.Returned), atomic.LoadUint32(&h.Waiting) > 0
}

// Missing lists the entry points of llama.cpp that the tap did not find.
func (r *Region) Missing() []string {
	return strings.Fields(cString(r.header.Missing[:]))
}

// Versions are those of the llama.cpp and the ggml that are recorded, as they say themselves; empty where they do
// not, or none is.
func (r *Region) Versions() (llama, ggml string) {
	return cString(r.header.LlamaVersion[:]), cString(r.header.GGMLVersion[:])
}

// Found is what processes with the tap have shown.
type Found struct {
	Tap       bool // some process has loaded it
	Llama     bool // some process had llama.cpp in it
	Recorded  bool // some process is recorded
	NoMemory  bool // some process had too little address space for the shared memory
	OtherGGML bool // some process was not recorded because its ggml has other structures
	Others    int  // processes that ran llama.cpp and were not recorded, because another one is
}

// Found returns what processes with the tap have shown so far.
func (r *Region) Found() Found {
	seen := atomic.LoadUint32(&r.header.Seen)
	return Found{
		Tap: seen&seenTap != 0, Llama: seen&seenLlama != 0, NoMemory: seen&seenNoMemory != 0, OtherGGML: seen&seenGGML != 0,
		Recorded: r.Attached() != 0, Others: int(atomic.LoadUint32(&r.header.Others)),
	}
}

// PID is the process that is recorded, 0 while there is none.
func (r *Region) PID() int { return int(atomic.LoadInt32(&r.header.PID)) }

// Layouts lists the structures of llama.cpp that are not what the tap was compiled with, in the process that is
// recorded.
func (r *Region) Layouts() []string {
	var names []string
	for bit, name := range layoutNames {
		if r.header.Layouts&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Matched is how many nodes and inputs the start selection has marked so far, in graphs that the model computes or
// had measured.
func (r *Region) Matched() int { return int(atomic.LoadUint32(&r.header.Matched)) }

// GlobHits returns how many nodes each tensor glob has matched so far.
func (r *Region) GlobHits(i int) int { return int(atomic.LoadUint32(&r.header.GlobHits[i])) }

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// LossCauses names why tensors were not recorded, in the order of the tap's counters.
var LossCauses = [...]string{"pool_full", "queue_full", "collector_gone", "no_memory", "graph_mismatch", "strides", LossStopped}

// The causes that end a recording: the tap learnt that nothing is recorded any more, or that it is only counted.
const (
	LossGone    = "collector_gone"
	LossStopped = "stopped"
)

// losses names the tap's counters of losses; those of which none is are left out.
func losses(dst []ggmlhooks.Loss, count func(i int) ggmlhooks.Count) []ggmlhooks.Loss {
	for i, cause := range LossCauses {
		if c := count(i); c != (ggmlhooks.Count{}) {
			dst = append(dst, ggmlhooks.Loss{Cause: cause, Count: c})
		}
	}
	return dst
}

// Stats is the tap's account of itself. Times are measured on the model's threads, in nanoseconds.
type Stats struct {
	Graphs, Executions, Reused, Calls uint64
	Asks, AskNS                       uint64 // nodes that ggml asked for; their time is measured once per graph
	Copies, CopiedBytes               uint64
	DescribeNS, HookNS, CopyNS, APINS uint64
	WaitNS, Waits                     uint64
	Rebuilt, RebuiltNS                uint64 // of Graphs, those described as what differs from the one before; of DescribeNS, what they took
	Unrecorded                        uint64 // graphs that the model computed after Stop
	Losses                            []ggmlhooks.Loss
}

// Stats reads the tap's counters.
func (r *Region) Stats() Stats {
	s := &r.header.Stats
	load := atomic.LoadUint64
	out := Stats{
		Graphs: load(&s.Graphs), Executions: load(&s.Executions), Reused: load(&s.Reused), Calls: load(&s.Calls),
		Asks: load(&s.Asks), AskNS: load(&s.AskNS),
		Copies: load(&s.Copies), CopiedBytes: load(&s.CopiedBytes),
		DescribeNS: load(&s.DescribeNS), HookNS: load(&s.HookNS), CopyNS: load(&s.CopyNS), APINS: load(&s.APINS),
		WaitNS: load(&s.WaitNS), Waits: load(&s.Waits), Rebuilt: load(&s.Rebuilt), RebuiltNS: load(&s.RebuiltNS), Unrecorded: load(&s.Unrecorded),
	}
	out.Losses = losses(nil, func(i int) ggmlhooks.Count {
		return ggmlhooks.Count{Packets: load(&s.Loss[i].Packets), Bytes: load(&s.Loss[i].Bytes)}
	})
	return out
}

// Turns returns how long a token of each turn took, see Options: the median of its last three quarters. The first
// turn was recorded, the second was not, and so on.
func (r *Region) Turns() []time.Duration {
	n := min(int(atomic.LoadUint32(&r.header.NTurns)), maxTurns)
	turns := make([]time.Duration, n)
	for i := range turns {
		turns[i] = time.Duration(r.header.TurnNS[i])
	}
	return turns
}

// Own is the time that the tap spent on the model's threads, without waiting for room: graph entry and end,
// descriptions, copies, asks, calls.
func (s Stats) Own() uint64 { return s.DescribeNS + s.HookNS + s.CopyNS + s.AskNS + s.APINS }

// LostPackets is the number of tensors that were not recorded, over all causes.
func (s Stats) LostPackets() (n uint64) {
	for _, l := range s.Losses {
		n += l.Packets
	}
	return n
}
