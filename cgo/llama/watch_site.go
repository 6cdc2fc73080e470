package llama

import "github.com/llamatap/llamatap/ggmlhooks"

// WatchKind is how a part of a tensor is changed.
type WatchKind int32

// Ways to change a part of a tensor, numbered as bridge.h does.
const (
	WatchSet     WatchKind = iota // Values are written
	WatchProject                  // the part along Values, of length 1, is taken out of F32 values
	WatchKeep                     // what is there is written again
)

// WatchWrite changes a part of a tensor, from Offset in bytes on.
type WatchWrite struct {
	Kind   WatchKind
	Offset uint64
	Values []float32
	Bytes  int // size of the part; of WatchKeep alone
}

// WatchSite is a node of a graph at which Context.DecodeWatched reads and changes the tensor.
type WatchSite struct {
	Node   int // in graph order
	Offset uint64
	Read   []byte // filled with what is at Offset before Writes; nil: nothing is read
	Writes []WatchWrite
}

// WatchGraph is a graph with the node that owns each node's memory: the node itself, or what it is a view of.
type WatchGraph struct {
	ggmlhooks.Graph
	Root   []int    // -1 where that is a leaf: a weight, a cache or an input
	Offset []uint64 // bytes from the beginning of the root
}
