//go:build linux

package collect

import (
	"errors"
	"fmt"
	"math/bits"
)

// Overflow is what happens when the pool is full.
type Overflow uint8

// The overflow policies. The numbers are shared with cgo/tap.
const (
	Block Overflow = iota // the model waits; nothing is lost
	// Drop does not record the tensor, and counts the loss. Only a queue without room for what frames tensors is
	// waited for.
	Drop
)

// Options says what the tap shall record and how much memory may be used for it.
type Options struct {
	// Start is what is captured and reported from the start on, until a [Region.Select] asks for something else.
	Start    Wish
	Overflow Overflow
	// Cold makes mapped models be read when they are touched, without read-ahead, and not when they are loaded.
	Cold bool
	// InStep makes the model wait, where a graph begins and where it ends, until the sink has returned from
	// everything that was reported before.
	InStep bool
	// Judge makes the model wait at its first graph of tokens until the sink has returned from it: a sink that
	// refuses Start ends the program before it computes.
	Judge bool
	// NoLogits ends graphs of tokens behind result_norm: what follows, the logits, is not computed.
	NoLogits bool
	// Turns is after how many generated tokens recording ends, and begins again, in alternation; 0: it does not. It is
	// for benchmarks, see Region.Turns.
	Turns uint32
	// Steer makes room for vectors that are added to the residual stream, see [Region.Steer]: the run is armed.
	Steer bool
	// Keep bounds the memory that wanted tensors of one graph may hold until the graph is computed; the graph is cut
	// for
	// the others. nil: the tap chooses.
	Keep *int64
	// MemoryBytes bounds the shared memory: queue, ring and slots. 0 means defaultMemoryBytes.
	MemoryBytes int64
	// StopOnFailure ends the program when this process dies; else it continues unrecorded.
	StopOnFailure bool
	// Backends is the folder that holds ggml's backends, for programs that would search a system folder. Empty: as
	// they do.
	Backends string
}

// defaultMemoryBytes is the size of the shared memory when none is asked for. With the collector's own memory it
// stays under the 256 MiB that --tap-memory defaults to.
const defaultMemoryBytes = 160 << 20

// SlotBytes is the size of one slot. Small tensors waste little of one, large ones take many.
const SlotBytes = 1024

// MinMemoryBytes is the smallest shared memory that works.
const MinMemoryBytes = 4 << 20

// ErrMemory occurs when the memory asked for is too small to hold the queue and a useful pool.
var ErrMemory = errors.New("too little memory for the tap")

// plan places queue, ring and slots.
type plan struct {
	queueOffset, queueBytes uint64
	ringOffset, ringEntries uint64
	slotsOffset, slots      uint64
	steerOffset, steerBytes uint64
	size                    uint64
}

func (o *Options) plan() (plan, error) {
	total := o.MemoryBytes
	if total == 0 {
		total = defaultMemoryBytes
	}
	if total < MinMemoryBytes {
		return plan{}, fmt.Errorf("%w: %d bytes, at least %d are needed; give --tap-memory a larger size",
			ErrMemory, total, MinMemoryBytes)
	}
	var p plan
	p.queueOffset = pageAlign(headerBytes)
	p.queueBytes = min(max(floorPower(uint64(total)/16), 1<<20), 8<<20)
	slots := (uint64(total) - p.queueOffset - p.queueBytes) / (SlotBytes + 16)
	p.ringOffset = p.queueOffset + p.queueBytes
	p.ringEntries = ceilPower(slots)
	p.slotsOffset = pageAlign(p.ringOffset + p.ringEntries*8)
	p.slots = slots
	p.size = p.slotsOffset + p.slots*SlotBytes
	if o.Steer { // pages that are never touched take no memory
		p.steerOffset, p.steerBytes = pageAlign(p.size), steerBytes
		p.size = p.steerOffset + 2*steerBytes
	}
	return p, nil
}

func pageAlign(n uint64) uint64  { return (n + 4095) &^ 4095 }
func floorPower(n uint64) uint64 { return 1 << (bits.Len64(n) - 1) }
func ceilPower(n uint64) uint64  { return 1 << bits.Len64(n-1) }
