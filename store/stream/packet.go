package stream

import (
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// Packet describes one captured tensor, or one piece of it: what its index record says. The fields of the first
// block are filled by the writer; a caller of [Writer.Append] leaves them zero.
type Packet struct {
	Offset    int64       // of the packet's header in the stream
	Stored    int64       // payload bytes in the stream
	CRC       uint32      // CRC-32C of the payload
	SrcBytes  int64       // bytes taken from the tensor
	RawBytes  int64       // bytes after conversion of the element type, before the codec
	DType     codec.DType // stored element type
	Codec     codec.ID
	Saturated uint64 // elements that were finite and became infinite by the conversion
	Underflow uint64 // elements that were not zero and became zero by the conversion
	// Error is the largest error of a row that a bounded codec made, measured when it was packed; 0 with the others.
	Error codec.Achieved
	// Rebuilt is true where the index was lost and Repair found the packet in the stream: name, place and sizes are
	// certain, element type, codec and shape follow from the node's other packets or are assumed, and the checksum
	// is that of the bytes as Repair found them. Execution, tokens and times are unknown.
	Rebuilt bool

	Name       string // packet name as written in the stream: NODE, or NODE#2 …
	Node       string // graph node's name
	Op         string // ggml's op name
	Occurrence int    // of this name and op in the graph, from 1
	Layer      int32  // label.NoLayer where it belongs to none
	Component  label.Component
	Rows       label.RowKind
	RowDim     int8 // dimension of NE that runs over rows; meaningless with RowsNone
	Ctx        uint32
	SrcType    int // ggml type number of the tensor

	Graph      uint64 // graph description
	Exec       uint64 // execution; all packets of one micro-batch share it
	NodeIndex  int32  // position of the node in the graph
	Phase      label.Phase
	NE         [4]int64 // shape of the tensor after row selection, ggml order (NE[0] fastest)
	TokenFirst int64    // token index of the first row; with RowsNone the micro-batch's first; -1 = no tokens
	TokenCount int32    // rows; with RowsNone the micro-batch's tokens
	TimeNS     int64    // when it was copied, Unix time
	MonoNS     int64    // the same on the monotonic clock

	// A tensor that is too large to pass at once is cut into Blocks pieces, each a packet of its own with the whole
	// tensor's NE; this one is piece Block and starts at element BlockStart. Uncut: 0, 0 or 1, 0.
	Block, Blocks uint32
	BlockStart    int64

	// A sample of the tensor's elements, in element order: SampleTotal elements were there, and SampleSeed chose.
	// SampleTotal 0 = no sample.
	SampleSeed  uint64
	SampleTotal int64
}

// AppendIndices appends the places, in the tensor or the piece that was sampled, of the packet's elements, in their
// order: they are made again from the seed. A packet that is not a sample adds nothing.
func (p *Packet) AppendIndices(dst []int64) []int64 {
	if p.SampleTotal == 0 {
		return dst
	}
	return label.SampleIndices(dst, p.SampleSeed, p.SampleTotal, p.Elements())
}

// Elements returns the number of elements stored, or of bytes where the element type is Raw.
func (p *Packet) Elements() int64 { return p.RawBytes / int64(p.DType.Size()) }

// Execution describes one execution of a graph, which is one micro-batch, and its token rows.
type Execution struct {
	Exec       uint64
	Graph      uint64
	Ctx        uint32
	Phase      label.Phase
	TimeNS     int64 // entry of the graph, Unix time
	MonoNS     int64 // the same on the monotonic clock
	TokenFirst int64 // index of the first row, -1 = no tokens
	Rows       []label.Row
}

// Loss records that packets were not recorded, and why. Losses of one cause add up.
type Loss struct {
	Cause     string
	Packets   uint64
	Bytes     uint64
	FirstExec uint64
	LastExec  uint64
}

// Resolution settles afterwards what executions of a context were for: it replaces the phase of every execution,
// row and packet of context Ctx from FirstExec to LastExec.
type Resolution struct {
	Ctx                 uint32
	FirstExec, LastExec uint64
	Phase               label.Phase
}
