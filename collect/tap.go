//go:build linux

package collect

import (
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Tap is what the tap reports of itself and of the model's process in the shared memory.
type Tap struct{ header *shmHeader }

// Attached reports whether the tap has joined (1) and said goodbye (2).
func (t Tap) Attached() int { return int(atomic.LoadUint32(&t.header.Attached)) }

// Missing lists the entry points of llama.cpp that the tap did not find.
func (t Tap) Missing() []string {
	return strings.Fields(unix.ByteSliceToString(t.header.Missing[:]))
}

// Versions are those of the llama.cpp and the ggml that are recorded, as they say themselves; empty where they do
// not, or none is.
func (t Tap) Versions() (llama, ggml string) {
	return unix.ByteSliceToString(t.header.LlamaVersion[:]), unix.ByteSliceToString(t.header.GGMLVersion[:])
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
func (t Tap) Found() Found {
	seen := atomic.LoadUint32(&t.header.Seen)
	return Found{
		Tap: seen&seenTap != 0, Llama: seen&seenLlama != 0, NoMemory: seen&seenNoMemory != 0,
		OtherGGML: seen&seenGGML != 0, Recorded: t.Attached() != 0, Others: int(atomic.LoadUint32(&t.header.Others)),
	}
}

// PID is the process that is recorded, 0 while there is none.
func (t Tap) PID() int { return int(atomic.LoadInt32(&t.header.PID)) }

// Layouts lists the structures of llama.cpp that are not what the tap was compiled with, in the process that is
// recorded.
func (t Tap) Layouts() []string {
	var names []string
	for bit, name := range layoutNames {
		if t.header.Layouts&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Matched is how many nodes and inputs the start selection has marked so far, in graphs that the model computes or
// had measured.
func (t Tap) Matched() int { return int(atomic.LoadUint32(&t.header.Matched)) }

// GlobHits returns how many nodes each tensor glob has matched so far.
func (t Tap) GlobHits(i int) int { return int(atomic.LoadUint32(&t.header.GlobHits[i])) }

// lossCauses names why tensors were not recorded, in the order of the tap's counters.
var lossCauses = [...]string{
	"pool_full", "queue_full", LossGone, "no_memory", "graph_mismatch", "strides", LossStopped,
}

// The causes that end a recording: the tap learnt that nothing is recorded any more, or that it is only counted.
const (
	LossGone    = "collector_gone"
	LossStopped = "stopped"
)

// losses names the tap's counters of losses; those of which none is are left out.
func losses(dst []ggmlhooks.Loss, count func(i int) ggmlhooks.Count) []ggmlhooks.Loss {
	for i, cause := range lossCauses {
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
	Rebuilt, RebuiltNS                uint64 // of Graphs and DescribeNS: graphs that are described as a difference
	Unrecorded                        uint64 // graphs that the model computed after Stop
	PinnedBytes                       uint64 // of the pool, which a GPU's driver has pinned
	PinError                          uint64 // that driver's error where it refused to
	Losses                            []ggmlhooks.Loss
}

// Stats reads the tap's counters.
func (t Tap) Stats() Stats {
	s := &t.header.Stats
	load := atomic.LoadUint64
	out := Stats{
		Graphs: load(&s.Graphs), Executions: load(&s.Executions), Reused: load(&s.Reused), Calls: load(&s.Calls),
		Asks: load(&s.Asks), AskNS: load(&s.AskNS),
		Copies: load(&s.Copies), CopiedBytes: load(&s.CopiedBytes),
		DescribeNS: load(&s.DescribeNS), HookNS: load(&s.HookNS), CopyNS: load(&s.CopyNS), APINS: load(&s.APINS),
		WaitNS: load(&s.WaitNS), Waits: load(&s.Waits), Rebuilt: load(&s.Rebuilt), RebuiltNS: load(&s.RebuiltNS),
		Unrecorded: load(&s.Unrecorded), PinnedBytes: load(&s.PinnedBytes), PinError: load(&s.PinError),
	}
	out.Losses = losses(nil, func(i int) ggmlhooks.Count {
		return ggmlhooks.Count{Packets: load(&s.Loss[i].Packets), Bytes: load(&s.Loss[i].Bytes)}
	})
	return out
}

// Turns returns how long a token of each turn took, see Options: the median of its last three quarters. The first
// turn was recorded, the second was not, and so on.
func (t Tap) Turns() []time.Duration {
	n := min(int(atomic.LoadUint32(&t.header.NTurns)), maxTurns)
	turns := make([]time.Duration, n)
	for i := range turns {
		turns[i] = time.Duration(t.header.TurnNS[i])
	}
	return turns
}

// Own is the time that the tap spent on the model's threads, without waiting for room: graph entry and end,
// descriptions, copies, asks, calls.
func (s Stats) Own() uint64 { return s.DescribeNS + s.HookNS + s.CopyNS + s.AskNS + s.APINS }
