package memtrace

// ColumnKind is the type of a column's values.
type ColumnKind uint8

// The kinds.
const (
	ColumnInt32 ColumnKind = iota
	ColumnInt64
	ColumnUint64
	ColumnText // UTF-8, few different ones
)

// Units of columns, as written in files.
const (
	unixNS  = "ns since 1970-01-01 00:00 UTC"
	inNS    = "ns"
	inBytes = "bytes"
)

// TraceColumn is a column of the table of accesses. All may be null: what is not known, or does not apply.
type TraceColumn struct {
	Name        string
	Kind        ColumnKind
	Unit        string // of what is measured; "": a name, a number of something or a count
	Description string
}

// The columns of the table of accesses, in order. Those from TraceBuffer on follow the ones that mrm-trace's
// users know.
const (
	TraceTime       = iota // ts_ns: Unix time
	TracePhase             // phase: see Phase
	TraceOp                // op: see AccessOp
	TraceAddr              // addr: of the host, null on a device
	TraceSize              // size: bytes that are touched; of a window their sum
	TraceRegion            // region_id: as in region_map.parquet
	TraceRegionType        // region_type: see RegionType
	TraceLayer             // layer
	TraceToken             // token_index: number of the token in the run
	TraceSeq               // seq_id
	TraceKVBlock           // kv_block
	TraceTID               // tid
	TraceDevice            // device: ggml's name
	TraceCollector         // collector: see Collector
	TraceGraphSeq          // graph_seq: number of the execution
	TraceOpSeq             // op_seq: number of the node in its graph
	TraceTimeSource        // time_source: see TimeSource
	TraceCtx               // ctx
	TraceCacheLevel        // cache_level: see CacheLevel
	TraceLatency           // latency_cycles
	TraceSymbol            // symbol: the function that did it
	TraceWeight            // weight: how many events a sample stands for
	TraceBuffer            // buffer_id
	TraceOffset            // offset: in the buffer
	TraceGGMLOp            // ggml_op: MUL_MAT, ROPE …
	TraceOperand           // operand: -1 is what the op writes, 0 and up its sources
	TracePieces            // pieces: runs of size/pieces bytes each
	TraceStride            // stride: bytes from one of them to the next
	TraceFlags             // flags: see TraceFlag
	TraceCount             // count: accesses that the row stands for
	TraceWindow            // window_ns: how long the window is that the row stands for
	TracePID               // pid: the process that did it
	TraceDataSymbol        // data_symbol: the variable at addr
	TraceStep              // step: prefill or decode
	TraceCPU               // cpu: that ran the thread
	traceColumns
)

var traceTable = [traceColumns]TraceColumn{
	{"ts_ns", ColumnInt64, unixNS,
		"beginning of the measured interval in which it happened; end of the window for the collector page"},
	{"phase", ColumnText, "", "what the process was doing: weight_load, generation, teardown, setup or maintenance"},
	{"op", ColumnText, "", "read, write, alloc or free; null: the collector does not report it"},
	{"addr", ColumnUint64, "", "first address in the process; null on a device"},
	{"size", ColumnUint64, inBytes, "bytes touched, of all pieces together; null: unknown"},
	{"region_id", ColumnInt64, "", "region of region_map.parquet"},
	{"region_type", ColumnText, "", "type of the region"},
	{"layer", ColumnInt32, "", "layer of the op"},
	{"token_index", ColumnInt32, "", "number of the token in the run, from 0, prompt included; of several the first"},
	{"seq_id", ColumnInt32, "", "sequence of the token; null: several"},
	{"kv_block", ColumnInt32, "", "block of the cache, as block_id of kv_block_lifecycle.parquet"},
	{"tid", ColumnInt32, "", "thread that made the access"},
	{"device", ColumnText, "", "ggml's name of the device"},
	{"collector", ColumnText, "", "source of the row: graph (the ledger), perf, ibs, spe, fault or page"},
	{"graph_seq", ColumnInt64, "", "number of the graph execution in the process"},
	{"op_seq", ColumnInt32, "", "number of the node in its graph"},
	{"time_source", ColumnText, "", "interval whose beginning ts_ns is: op, range or graph; null for samples"},
	{"ctx", ColumnInt32, "", "context"},
	{"cache_level", ColumnText, "", "where a sampled access found its data"},
	{"latency_cycles", ColumnInt64, "cycles", "latency of a sampled access"},
	{"symbol", ColumnText, "", "function at the instruction's address"},
	{"weight", ColumnUint64, "", "events that a sample stands for: the sampling period"},
	{"buffer_id", ColumnUint64, "", "backend buffer"},
	{"offset", ColumnUint64, inBytes, "first byte touched, from the beginning of the buffer"},
	{"ggml_op", ColumnText, "", "operation of the node, as ggml names it"},
	{"operand", ColumnInt32, "", "-1: the result of the op; 0 and up: the number of its source"},
	{"pieces", ColumnInt64, "", "runs of size/pieces bytes each"},
	{"stride", ColumnInt64, inBytes, "from the beginning of one piece to the next; null: one piece"},
	{"flags", ColumnInt32, "",
		"sum of 1 fusible, 2 padded, 4 repacked, 8 loaded, 16 scattered, 32 unknown, 64 inferred, 128 copied"},
	{"count", ColumnInt64, "", "accesses that the row stands for"},
	{"window_ns", ColumnInt64, inNS, "length of the window that the row sums up"},
	{"pid", ColumnInt32, "", "process that made the access"},
	{"data_symbol", ColumnText, "", "variable or constant at addr"},
	{"step", ColumnText, "", "prefill: of prompt tokens; decode: of generated ones; null: of both, of none or set-up"},
	{"cpu", ColumnInt32, "", "CPU that ran the thread of a sample"},
}

// TraceColumns are the columns of the table of accesses, by the numbers above.
func TraceColumns() []TraceColumn { return append([]TraceColumn(nil), traceTable[:]...) }

// LedgerKey is the key of the table's metadata that says what the ledger of graphs is made of: a Ledger as JSON. It
// stands in the last part.
const LedgerKey = "llamatap_ledger"

// Ledger counts what was executed, and what of it the rows do not hold whole.
type Ledger struct {
	Mode       string `json:"mode"`       // rows or windows
	Executions int64  `json:"executions"` // graphs that were computed
	Failed     int64  `json:"failed"`     // of these, those that failed: there are no rows of what they touched
	Accesses   int64  `json:"accesses"`   // operands of executed ops, in as many rows as it takes, or summed up
	// Unplaced is how often an op touched a tensor of which it is not known where it lies: there is no row of it.
	Unplaced int64 `json:"unplaced"`
	// Unreported is how often it was unknown which rows, cells or experts an op touched: the row says that it is
	// scattered or unknown.
	Unreported int64 `json:"untold"`
	// Undecided is how many executions were written before it was known whether they are set-up. Their phase is null.
	Undecided int64 `json:"undecided"`
}

// TraceFlag is a set of what is to be known of a row of the ledger beside its columns.
type TraceFlag int32

// The flags. The numbers are stored in files.
const (
	// TraceFusible: a result that only the next op reads, value by value. A backend that computes both at once
	// keeps it in registers.
	TraceFusible TraceFlag = 1 << iota
	// TracePadded: cells of a cache that the op is given and that its mask hides. Some kernels pass over them.
	TracePadded
	// TraceRepacked: the buffer holds its tensors in another order than ggml's, so that rows and columns lie
	// elsewhere within the tensor.
	TraceRepacked
	// TraceLoaded: no op did it, it came with the loading of the model.
	TraceLoaded
	// TraceScattered: size bytes in so many pieces, which lie somewhere from the offset on, not one stride apart.
	TraceScattered
	// TraceUnknown: it is not known which bytes, such as of experts that nobody saw being chosen. size is null.
	TraceUnknown
	// TraceInferred: of a sample whose address lies in no known region. The region's type follows from the name of
	// the function, see TypeOfFunction.
	TraceInferred
	// TraceCopied: no op did it, experts were copied from host memory to a cache of experts on a device.
	TraceCopied
)

// Phase is what the process was doing when an access happened.
type Phase uint8

// The phases. The first three are mrm-trace's.
const (
	WeightLoad  Phase = iota // before the first graph of the run
	Generation               // prompts are read and tokens generated
	Teardown                 // after the last graph
	Setup                    // a warm-up or probe, whose results were thrown away
	Maintenance              // work on caches, such as a context shift
	phases
)

var tracePhaseNames = []string{"weight_load", "generation", "teardown", "setup", "maintenance"}

// String returns the phase's name as written in files.
func (p Phase) String() string { return nameOf(p, tracePhaseNames, "phase") }

// ParsePhase is the inverse of String.
func ParsePhase(s string) (Phase, error) { return parseName[Phase](s, tracePhaseNames, "phase") }

// TimeSource says what a row's time is the beginning of.
type TimeSource uint8

// The sources of times. Samples have times of their own, and none of these.
const (
	TimeUnknown TimeSource = iota
	TimeOfOp               // the op alone
	TimeOfRange            // several ops that were timed as one, or the loading of a model
	TimeOfGraph            // the whole graph
	TimeOfCopy             // a copy to a device
	timeSources
)

var timeSourceNames = []string{"", "op", "range", "graph", "copy"}

// String returns the source's name as written in files, "" where there is none.
func (t TimeSource) String() string { return nameOf(t, timeSourceNames, "time_source") }
