package memtrace

// RegionType is what a piece of memory is for.
type RegionType uint8

// The types.
const (
	Other         RegionType = iota // nothing that is known
	Weight                          // a tensor of a model, or of an adapter, and what lies beside them in their buffer
	KVCache                         // a layer's keys or values, or its recurrent states
	Activation                      // an input or a result of a graph, while the graph is computed
	ComputeBuffer                   // memory for activations, where it is not known which
	Runtime                         // what else was allocated: outputs, the heap
	Padding                         // a gap between tensors that only brings the next one to an even address
	Code                            // instructions of the program and of its libraries
	Stack                           // of a thread
	StaticData                      // variables and constants of the program and of its libraries
	regionTypes
)

var regionTypeNames = []string{"other", "weight", "kv_cache", "activation", "compute_buffer", "runtime", "padding",
	"code", "stack", "static_data"}

// String returns the type's name as written in files.
func (t RegionType) String() string { return nameOf(t, regionTypeNames, "region_type") }

// ParseRegionType is the inverse of String.
func ParseRegionType(s string) (RegionType, error) {
	return parseName[RegionType](s, regionTypeNames, "region type")
}

// NoLayer is the layer of what belongs to none.
const NoLayer = -1

// Forever ends what has not ended.
const Forever = 1<<63 - 1

// Region is a tensor, what lies between tensors, or a mapping of the process that holds none.
type Region struct {
	ID     int // counts up per map, from 0
	Type   RegionType
	Name   string // of the tensor, the buffer or the mapped file
	Tensor string // ggml's name of the tensor, "" where there is none
	Part   string // of a cache: k, v, r or s; else ""
	Layer  int
	DType  string  // ggml's name of the tensor's type, "" where there is none
	Shape  []int64 // ne[0] first
	Buffer uint64  // that it lies in, 0 = none: a mapping
	Offset uint64  // in its buffer; a mapping's address
	Bytes  uint64
	From   int64 // since when the memory is there, and until when; CLOCK_MONOTONIC nanoseconds
	To     int64 // Forever: it still is
	// of an activation or a cache, the context whose graphs compute or use it; else, and where there are several, -1
	Ctx int
	Op  string
	PID int32 // process whose memory it is, 0: unknown
	// Moves is how often an activation was seen at another place than before.
	Moves   int
	Use     Use
	several bool    // contexts use it
	root    *Region // the tensor that this one turned out to be a view of; nil: it is one itself
}

// Root is the tensor that r is a view of, or r itself.
func (r *Region) Root() *Region {
	for r.root != nil {
		r = r.root
	}
	return r
}

// UsedBy notes that graphs of a context use a cache. A cache that several contexts use belongs to none of them.
func (r *Region) UsedBy(ctx int) {
	switch {
	case r.several || r.Ctx == ctx:
	case r.Ctx < 0:
		r.Ctx = ctx
	default:
		r.Ctx, r.several = -1, true
	}
}

// Use is how a region was used by the ops of graphs. A time of 0 is none.
type Use struct {
	FirstWriteNS, LastWriteNS int64 // CLOCK_MONOTONIC, begin of the measured interval in which it happened
	FirstReadNS, LastReadNS   int64
	Writes, Reads             int64 // ops
	BytesWritten, BytesRead   int64 // each operand byte once per op
	// Unknown is how many reads there were of which it is not known how many bytes they read, such as of experts
	// that nobody saw being chosen.
	Unknown int64
}

// Write notes n writes of so many bytes in all, the first and the last at these times.
func (u *Use) Write(n, bytes, first, last int64) {
	if n == 0 {
		return
	}
	u.Writes += n
	u.BytesWritten += bytes
	u.FirstWriteNS, u.LastWriteNS = spread(u.FirstWriteNS, u.LastWriteNS, first, last)
}

// Read notes n reads of so many bytes in all, the first and the last at these times.
func (u *Use) Read(n, bytes, first, last int64) {
	if n == 0 {
		return
	}
	u.Reads += n
	u.BytesRead += bytes
	u.FirstReadNS, u.LastReadNS = spread(u.FirstReadNS, u.LastReadNS, first, last)
}

func spread(first, last, newFirst, newLast int64) (int64, int64) {
	if first == 0 || newFirst < first {
		first = newFirst
	}
	return first, max(last, newLast)
}

// add adds what happened to a view.
func (u *Use) add(o Use) {
	u.Write(o.Writes, o.BytesWritten, o.FirstWriteNS, o.LastWriteNS)
	u.Read(o.Reads, o.BytesRead, o.FirstReadNS, o.LastReadNS)
	u.Unknown += o.Unknown
}

// RegionTypes are all of them.
func RegionTypes() []RegionType {
	all := make([]RegionType, regionTypes)
	for t := range regionTypes {
		all[t] = t
	}
	return all
}
