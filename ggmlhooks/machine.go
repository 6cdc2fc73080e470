package ggmlhooks

// BufferUsage is what a program said a buffer is for. The numbers are ggml's.
type BufferUsage uint8

// The usages.
const (
	BufferAny     BufferUsage = iota // not said: caches, among others
	BufferWeights                    // weights of a model
	BufferCompute                    // intermediate results of graphs
)

var bufferUsages = [...]string{"any", "weights", "compute"}

// String returns the usage's name as written in files.
func (u BufferUsage) String() string {
	if int(u) < len(bufferUsages) {
		return bufferUsages[u]
	}
	return "any"
}

// Buffer is a piece of memory that a ggml backend allocated, or took from a mapped file. Every tensor lies in one.
type Buffer struct {
	ID     uint64 // counts up per process, from 1
	MonoNS int64
	// Base is an address in the model's process if Host, else what the device takes for one: it may be equal to one
	// of the host.
	Base   uint64
	Size   uint64 // bytes
	Usage  BufferUsage
	Host   bool   // its memory is the process's own, repacked weights included
	Mapped bool   // its memory is a mapped file's
	Type   string // ggml's name of its kind: CPU, CPU_Mapped, CPU_REPACK, CUDA0, RPC[…]
	Device string // ggml's name of its device, "" where it has none
	// File is the file that is mapped, and FileOffset where in it the buffer begins. "": it is not mapped, or not
	// known of which.
	File       string
	FileOffset uint64
	// Known is true when a buffer is reported again, because its usage was set, or because another kind of buffer
	// took its memory over.
	Known bool
}

// BufferEnd reports that a buffer was freed.
type BufferEnd struct {
	ID     uint64
	MonoNS int64
}

// Place is where a tensor lies: never an address alone, because those of devices and of the host may collide.
type Place struct {
	Buffer uint64 // 0 = in none that the tap knows
	Offset uint64 // bytes from the buffer's base
}

// Looking is which nodes of a graph are timed. The numbers are shared with cgo/tap.
type Looking uint8

// The ways of looking. Each asks ggml to stop behind a node, so each costs the model something: see [Times].
const (
	LookNever  Looking = iota // no node is timed: the eval callback is not set for it
	LookRanges                // the last node of each run of nodes that have one layer and component
	LookOps                   // every node that computes, and some that compute nothing, to learn what looking costs
)

// Times are the ends of timed nodes of one execution, in the order in which they were computed.
//
// The time between two of them is that of all nodes behind the first up to the second: of one op only where the one
// before it was timed too. It holds one launch and one synchronisation. A timed node that computes nothing, behind
// another timed one, takes just that, and so shows what looking costs.
type Times struct {
	Exec, Graph uint64
	BeginNS     int64 // CLOCK_MONOTONIC when ggml was given the graph
	Nodes       []NodeTime
}

// NodeTime is the end of a node. Its own data phase, which copies tensors, lies between DoneNS and LeftNS and
// belongs to no node.
type NodeTime struct {
	Node   int32 // index into Graph.Nodes
	DoneNS int64 // after BeginNS, when it was computed
	LeftNS int64 // after BeginNS, when ggml continued
}

// Sync is the first synchronisation of a scheduler after executions that were reported as [ExecEnd].Async: they are
// done.
type Sync struct {
	Exec   uint64 // the newest of them
	MonoNS int64  // when the program's call returned
	// WaitNS is how long it took. If that is next to nothing, the device was done before, at an unknown time.
	WaitNS int64
	Graphs int // how many there are. If there are several, it is unknown when one of them was done
}

// InputKind is what an input says of an execution. The numbers are shared with cgo/tap.
type InputKind uint8

// The kinds.
const (
	InputCells  InputKind = iota // rows that SET_ROWS writes to: per token the cell of a cache, over all its streams
	InputMask                    // per token the ranges of cells that attention may read
	InputStates                  // recurrent memory: per sequence of the micro-batch the cell that its state is in
)

// Input is what was read of an input tensor at the entry of an execution: its memory is used again while the graph
// is computed.
type Input struct {
	Exec, Graph uint64
	Leaf        int // index into Graph.Leafs
	Kind        InputKind
	// Values are cells, for InputCells one per token, whatever layout the index has: -1 where the index is not that
	// of a cell, which would be a defect. For InputStates one per sequence.
	Values []int64
	// Ranges are those of a mask, sorted by row, then by cell. Rows count tokens over all streams.
	Ranges []CellRange
}

// CellRange is cells First ≤ c < End that a token may read. In a mask with several streams they count in the stream
// of the token.
type CellRange struct{ Row, First, End int32 }

// Candidate is a token that a sampler could have chosen.
type Candidate struct {
	Token int32
	Logit float32
	P     float32 // probability as the sampler computed it; 0 where it computed none
}

// Sample is one choice of an outermost sampler chain.
type Sample struct {
	Ctx     uint32 // of the thread's last call
	MonoNS  int64
	Token   int32       // chosen
	InSize  int         // candidates before
	OutSize int         // and behind the chain
	Top     []Candidate // those of the highest logits behind the chain, highest first, at most MaxCandidates
}

// MaxCandidates is how many candidates a Sample has at most.
const MaxCandidates = 10

// Moved is bytes of a tensor that a program, or the tap for the recording, moved to a device or from one.
type Moved struct {
	Tensor          string // as ggml calls it
	Buffer          uint64 // of the device
	Offset, Bytes   uint64 // in it
	Addr            uint64 // in the program, where the bytes came from or went to
	BegunNS, MonoNS int64  // from call to return; of one that is Async, to the next synchronisation
	Get             bool   // from the device
	Async           bool
	Own             bool // for the recording
	Copy            bool // reported before it is moved to a device, beside what says how long that took
}

// Purpose says what a captured tensor is for. The bits are shared with cgo/tap.
type Purpose uint8

// The purposes.
const (
	ForStream  Purpose = 1 << iota // the capture of tensors
	ForRouting                     // experts that were chosen, and their weights
)

// MachineSink takes what the tap reports about memory, time, inputs and samplers, in the order in which it
// happened. Nothing that is handed over by pointer or slice may be kept.
type MachineSink interface {
	Buffer(*Buffer) error
	BufferEnd(BufferEnd) error
	Times(*Times) error
	Input(*Input) error
	Sample(*Sample) error
	Sync(Sync) error
	Served(*Served) error
	Moved(*Moved) error
}

// NoMachine ignores everything of a [MachineSink]: a sink that embeds it need not care.
type NoMachine struct{}

// Buffer does nothing.
func (NoMachine) Buffer(*Buffer) error { return nil }

// BufferEnd does nothing.
func (NoMachine) BufferEnd(BufferEnd) error { return nil }

// Times does nothing.
func (NoMachine) Times(*Times) error { return nil }

// Input does nothing.
func (NoMachine) Input(*Input) error { return nil }

// Sample does nothing.
func (NoMachine) Sample(*Sample) error { return nil }

// Sync does nothing.
func (NoMachine) Sync(Sync) error { return nil }

// Served does nothing.
func (NoMachine) Served(*Served) error { return nil }

// Moved does nothing.
func (NoMachine) Moved(*Moved) error { return nil }
