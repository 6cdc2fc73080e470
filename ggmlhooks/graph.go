package ggmlhooks

import (
	"math/bits"
	"strconv"
)

// Node is one node of a graph, in graph order.
type Node struct {
	Name       string // ggml's name; "node_24" for one that llama.cpp left unnamed
	Op         string // ggml's op name: MUL_MAT, ROPE, SET_ROWS …; for UNARY and GLU the function: SILU, SWIGLU …
	Occurrence int    // 1 for the first node of that name and op in the graph, in graph order
	// Number counts the nodes of the graph that go by one name (their own, or the alias's), from 1: first those
	// that compute, in graph order, then the others. It is the same whatever a selection wants of the graph.
	Number    int
	Layer     int // NoLayer where the node belongs to none
	Component Component
	Rows      RowKind
	RowDim    int // first dimension that runs over rows; meaningless with RowsNone
	Type      int // ggml type number
	NE        [4]int64
	NB        [4]uint64 // strides in bytes
	View      bool      // computes nothing: NONE, VIEW, RESHAPE, PERMUTE, TRANSPOSE
	Computed  bool      // the graph computes it: no view, and no node that llama.cpp builds and never runs
	Wanted    bool      // the tap captures it
	Alias     int       // view whose name and shape the tap stores for this unnamed node, -1 = none
	Inferred  InferredFrom
	Src       []int32  // index into Graph.Nodes, or -1-i for Graph.Leafs[i]; without those that are NULL
	Slots     uint16   // bit k: ggml's src[k] is not NULL. Src has one entry per bit, in their order
	OpParams  [8]int32 // the op's first parameters, as ggml stores them
	Routing   bool     // its tensor says which experts were chosen, or their weights
	Place              // where its tensor lies while this graph is computed
}

// PacketName is the name that the packets of node i bear, and under which it is printed and selected: NAME for the
// first node of a name, NAME#2, NAME#3 for further ones. An unnamed node goes by the name of the view that stands
// for it; without one by ggml's number of it in this graph, as in node_24.
func (g *Graph) PacketName(i int) string {
	if g.Nodes[i].Number > 1 {
		return g.shownName(i) + "#" + strconv.Itoa(g.Nodes[i].Number)
	}
	return g.shownName(i)
}

// shownName is the name of node i without its number.
func (g *Graph) shownName(i int) string {
	if alias := g.Nodes[i].Alias; alias >= 0 && alias < len(g.Nodes) {
		return g.Nodes[alias].Name
	}
	return g.Nodes[i].Name
}

// SrcAt returns ggml's src[k], as Src has it.
func (n *Node) SrcAt(k int) (src int32, ok bool) {
	if k < 0 || k > 15 || n.Slots>>k&1 == 0 {
		return 0, false
	}
	at := bits.OnesCount16(n.Slots & (1<<k - 1))
	if at >= len(n.Src) {
		return 0, false
	}
	return n.Src[at], true
}

// InferredFrom says where a node's layer and component come from.
type InferredFrom uint8

// Where a layer and component come from. The numbers are shared with cgo/tap.
const (
	FromNothing  InferredFrom = iota
	FromWeight                // the GGUF name of a weight that the node reads
	FromOp                    // the op itself: cache writes, flash attention
	FromName                  // the node's own name
	FromConsumer              // the node that reads it
	FromSource                // the node that it reads
)

// Leaf is a tensor that a graph reads and does not compute: weight, cache or input.
type Leaf struct {
	Name  string
	Type  int
	NE    [4]int64
	NB    [4]uint64
	Input bool // filled anew for each execution
	Place
}

// Graph describes one graph of one context, as llama.cpp built it. It may be executed many times.
type Graph struct {
	ID      uint64 // counts up per process
	Ctx     uint32 // number of the context, by first graph
	Tokens  int    // tokens of the micro-batch, 0 = a maintenance graph
	Outputs int    // output tokens, -1 = the graph has no output ids
	Wanted  int    // nodes that the tap captures
	// Selection is the number of the selection that its nodes are marked by: 0 is that of the start. A graph that
	// is marked anew is described anew, under another ID.
	Selection uint32
	Attention AttentionMode // of that selection
	Nodes     []Node
	Leafs     []Leaf
}

// captures reports whether the tap may capture a node, or the leaf -1-node.
func (g *Graph) captures(node int) bool {
	if node < 0 {
		return -1-node < len(g.Leafs)
	}
	return node < len(g.Nodes) && g.Nodes[node].Wanted
}
