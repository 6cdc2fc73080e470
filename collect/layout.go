//go:build linux

package collect

import (
	"math"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// The layout of the shared memory: Go's mirror of cgo/tap/tap_shm.h. TestLayout compares the two.

const (
	shmMagic   = 0x314d485350415401
	shmVersion = 23

	maxGlobs    = 64
	globSize    = 128
	pathSize    = 1024
	layerWords  = ggmlhooks.MaxLayers / 64
	maxLosses   = 8
	missingSize = 2048
	versionSize = 64
	maxTurns    = 2047
	pointWords  = 1024
)

// How the collector sleeps: enum tap_sleep.
const (
	sleepNone uint32 = iota
	sleepLight
	sleepDeep
)

// recordActivations asks the tap for tensors; recordGraphs for graph descriptions and executions alone.
const (
	recordActivations = 1 << 0
	recordGraphs      = 1 << 1
	recordMapsAlone   = 1 << 2
	recordCells       = 1 << 3
	recordRouting     = 1 << 4
	recordSamples     = 1 << 5
	recordExperts     = 1 << 6
	recordRequests    = 1 << 7
	recordMoves       = 1 << 8
	recordCopies      = 1 << 9
)

// What processes with the tap have shown.
const (
	seenTap = 1 << iota
	seenLlama
	seenNoMemory
	seenGGML
)

// layoutNames are structures that may be laid out otherwise than the tap knows, by bit.
var layoutNames = [...]string{"ggml_tensor", "llama_batch", "llama_context_params"}

// What the header's word Closed says, see enum tap_closed.
const (
	tapClosed = 1
	tapCounts = 2
)

// keepAuto lets the tap choose how much of a graph stays in place until it is computed.
const keepAuto = math.MaxUint64

// failureStop ends the program when the collector dies.
const failureStop = 1

type shmSelection struct {
	Record      uint32
	Granularity uint32
	Attention   uint32
	LayersSet   uint32
	Layers      [layerWords]uint64
	TokenKind   uint32
	NGlobs      uint32
	TokenFirst  int64
	TokenEnd    int64
	TokenStep   int64
	Window      int64
	Looking     uint32
	LookEvery   uint32
	Points      uint32
	WindowOf    uint32
	Globs       [maxGlobs][globSize]byte
}

const selectionWords = unsafe.Sizeof(shmSelection{}) / 8

type shmConfig struct {
	Start        shmSelection
	Overflow     uint32
	CollectorPID int32
	OnFailure    uint32
	Exact        uint32
	Cold         uint32
	InStep       uint32
	Turns        uint32
	Judge        uint32
	NoLogits     uint32
	KeepBytes    uint64
	Backends     [pathSize]byte
}

type shmCount struct {
	Packets uint64
	Bytes   uint64
}

type shmStats struct {
	Graphs, Executions, Reused, Calls uint64
	Asks, AskNS                       uint64
	Copies, CopiedBytes               uint64
	DescribeNS, HookNS, CopyNS        uint64
	WaitNS, Waits, APINS              uint64
	Rebuilt, RebuiltNS                uint64
	Unrecorded                        uint64
	PinnedBytes, PinError             uint64
	Loss                              [maxLosses]shmCount
}

type shmHeader struct {
	Magic        uint64
	Version      uint32
	HeaderBytes  uint32
	TotalBytes   uint64
	QueueOffset  uint64
	QueueBytes   uint64
	RingOffset   uint64
	RingEntries  uint64
	SlotsOffset  uint64
	SlotBytes    uint64
	NSlots       uint64
	SteerOffset  uint64
	SteerBytes   uint64
	Config       shmConfig
	_            [40]byte
	QueueHead    uint64
	_            [56]byte
	QueueTail    uint64
	_            [56]byte
	RingHead     uint64
	Returned     uint64
	_            [48]byte
	RingTail     uint64
	WakeReturned uint64
	Taken        uint64
	_            [40]byte
	Room         uint32
	Waiting      uint32
	Sleeps       uint32
	Work         uint32
	Attached     uint32
	Closed       uint32
	Selection    uint32
	GlobHits     [maxGlobs]uint32
	Matched      uint32
	_            [32]byte
	Stats        shmStats
	Missing      [missingSize]byte
	LlamaVersion [versionSize]byte
	GGMLVersion  [versionSize]byte
	Seen         uint32
	Others       uint32
	PID          int32
	Layouts      uint32
	_            [24]byte
	Selections   [2][selectionWords]uint64
	_            [48]byte
	Points       [pointWords]uint64
	PointsOf     uint64
	NTurns       uint32
	TurnNS       [maxTurns]uint32
	_            [56]byte
	Steer        uint32
	SteerEmbd    uint32
	SteerLayers  uint32
	SteerExec    uint32
	SteerNS      uint64
	SteerFound   [layerWords]uint64
	SteerSeqs    uint32
	_            [36]byte
}

// The most vectors at a time, that of all sequences included, and the sequences that may have one of their own.
const (
	steerVectors   = 16
	steerSequences = 256
)

// shmVectors comes before the rows of vectors.
type shmVectors struct {
	Embd, Rows, Vectors uint32
	_                   uint32
	States              [steerVectors]uint64
	Of                  [steerSequences]uint8
}

// steerZero is the state of vectors that are all zero.
const steerZero = 2

// Record types.
const (
	recPad = iota
	recHello
	recContext
	recCall
	recCallEnd
	recGraph
	recNodes
	recLeafs
	recExec
	recExecEnd
	recCapture
	recResolve
	recGoodbye
	recContextEnd
	recSeq
	recBuffer
	recBufferEnd
	recTimes
	recInput
	recSample
	recSync
	recChanges
	recLosses
	recServed
	recMoved
)
