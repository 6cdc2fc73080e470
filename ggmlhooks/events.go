package ggmlhooks

// Context describes a llama_context, numbered by its first call. Fields that the tap could not learn are zero.
type Context struct {
	Number                         uint32
	Model                          int // number of the model in the process, -1 = unknown
	ModelBytes, ModelParams        uint64
	LoadedNS                       int64 // CLOCK_MONOTONIC, when the loading of the model had ended; 0 = not known
	NCtx, NBatch, NUBatch, NSeqMax uint32
	NLayer, NEmbd, NHead, NHeadKV  int
	NVocab, NCtxTrain              int
	Window                         int // positions of a sliding window, 0 = none
	FileType                       int // llama_ftype, -1 = unknown
	Recurrent, Hybrid              bool
	FlashAttn                      int // as the program asked: -1 auto, 0 off, 1 on; -2 unknown
	Desc, Path, Arch, Name         string
}

// CallKind is the function of llama.h that a call came through. The numbers are shared with cgo/tap.
type CallKind uint8

// The call kinds.
const (
	CallDecode  CallKind = iota // llama_decode
	CallEncode                  // llama_encode, or llama_process as encoder
	CallProcess                 // llama_process as decoder
)

// Call is one call of a program: the batch that llama.cpp then cuts into micro-batches.
type Call struct {
	Number  uint64
	Ctx     uint32
	Kind    CallKind
	MonoNS  int64
	Read    bool // logits or embeddings were read, or the context synchronised, since the context's call before
	Accepts bool // a sampler accepted a token since the context's call before
	Rows    []CallRow
}

// CallRow is one token of a call's batch, in the program's order.
type CallRow struct {
	Token  int32 // -1: an embedding
	Pos    int32 // PosAuto: left to llama.cpp
	Seqs   []int32
	Output bool
}

// PosAuto is the position of a row that the program left to llama.cpp.
const PosAuto = -1 << 31

// NoWindow stands for the tokens that are left of a selection without end.
const NoWindow = -1

// Exec is one execution of a graph: one micro-batch, or work on the memory.
type Exec struct {
	Number      uint64 // counts up per process
	Graph       uint64
	Call        uint64 // 0 = outside of a call
	Ctx         uint32
	MonoNS      int64
	TokenFirst  int64 // number of the first token in the run, -1 = no tokens
	Reused      bool
	Provisional bool  // whether it is the run or a warm-up before it is decided later, by a Resolve
	Captured    bool  // tensors of it may follow
	Left        int64 // tokens that the selection's window has left behind it, or NoWindow
	// Steer is the number of the vectors that are added to the residual stream, 0: none yet; of a context that takes
	// none it is the largest number.
	Steer   uint32
	Tokens  []int32
	Pos     []int32 // empty where the graph has no positions
	Outputs []int32 // token rows whose logits or embeddings are computed
}

// ExecEnd says how an execution ended.
type ExecEnd struct {
	Number uint64
	MonoNS int64
	Status int
	// BeginNS is when ggml was given the graph; 0 where that is not known. From then to MonoNS the graph was
	// computed, unless Async.
	BeginNS int64
	Async   bool // a device may continue computing behind MonoNS, up to a [Sync]
	// Selected is what was computed of it and wanted for the stream: it was captured, or is among Losses.
	Selected Count
	Losses   []Loss // valid during the call
	// OwnNS is what the tap took on the model's threads since the end of the execution before, and WaitNS what these
	// waited for the recording. Either may be negative where threads compute at the same time; sums are right.
	OwnNS, WaitNS int64
	// WaitBeforeNS is, of WaitNS, what was waited before the execution's entry.
	WaitBeforeNS int64
	// Cuts is how often ggml computed a part of the graph and waited for it because of the tap alone, and CutNS
	// what one such stop costs, measured behind this execution; 0 where that was not measured.
	Cuts, CutNS int64
}

// Count is a number of captured tensors, or pieces of them, and their bytes.
type Count struct{ Packets, Bytes uint64 }

// Add adds another count.
func (c *Count) Add(d Count) { c.Packets, c.Bytes = c.Packets+d.Packets, c.Bytes+d.Bytes }

// Minus returns what c has more than d.
func (c Count) Minus(d Count) Count { return Count{c.Packets - d.Packets, c.Bytes - d.Bytes} }

// Loss is what was not captured, for one cause.
type Loss struct {
	Cause string
	Count
}

// Resolve decides what the provisional executions of a context were, up to number Exec.
type Resolve struct {
	Ctx       uint32
	Exec      uint64
	Discarded bool // set-up, thrown away; false: the run
}

// Capture is one captured piece of a tensor. Data is borrowed: it is valid until Release is called, which must
// happen exactly once, from any goroutine.
type Capture struct {
	Exec, Graph uint64
	MonoNS      int64
	Node        int // index into Graph.Nodes, or -1-i for Graph.Leafs[i]
	Type        int // ggml type of Data
	NE          [4]int64
	RowFirst    int // first token row of the micro-batch, -1 = no rows
	RowCount    int
	For         Purpose
	Block       int // number of this piece of Blocks, for a tensor that is larger than a quarter of the pool
	Blocks      int
	BlockStart  int64 // first element of this piece
	Cut         bool  // the graph was stopped for it
	Data        []byte
	Release     func()
}

// Sink takes what the tap reports, in the order in which it happened per context. Nothing that is handed over by
// pointer or slice may be kept, except a Graph, which does not change, and a Capture's Data until its Release.
type Sink interface {
	Context(*Context) error
	Graph(*Graph) error
	Call(*Call) error
	Exec(*Exec) error
	Capture(*Capture) error
	ExecEnd(ExecEnd) error
	Resolve(Resolve) error
	SeqChange(*SeqChange) error
	MachineSink
}
