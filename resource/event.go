package resource

// Header is what every event begins with.
type Header struct {
	Event     Kind      `json:"event"`
	Timestamp Timestamp `json:"timestamp"`
	UnixNS    int64     `json:"unix_ns"`
	MonoNS    int64     `json:"mono_ns"`
	SessionID string    `json:"session_id"`
	Ctx       *uint32   `json:"ctx,omitempty"`
	// Source is the weakest tag of the event's figures; Sources has those that differ from it, by key.
	Source  Source            `json:"source"`
	Sources map[string]Source `json:"sources,omitempty"`
}

// SessionStart begins a file of events.
type SessionStart struct {
	Header
	Level    Level     `json:"level"`
	Version  int       `json:"events_version"`
	Threads  *int      `json:"threads,omitempty"`
	Roofline *Roofline `json:"roofline,omitempty"`
}

// Roofline is what the machine can do at most, as measured on it.
type Roofline struct {
	GFLOPsPerS float64 `json:"gflops_per_s"`
	GBPerS     float64 `json:"gb_per_s"`
}

// TrackingBegin marks the point from which everything that the tap reports is recorded.
type TrackingBegin struct{ Header }

// LayerBegin is the beginning of a layer's nodes in an execution.
type LayerBegin struct {
	Header
	Exec    uint64 `json:"exec"`
	LayerID int    `json:"layer_id"`
}

// LayerEnd is the end of a layer's nodes in an execution, with what they did.
type LayerEnd struct {
	Header
	Exec              uint64   `json:"exec"`
	LayerID           int      `json:"layer_id"`
	DurationUS        int64    `json:"duration_us"`
	DurationNS        int64    `json:"duration_ns"`
	LayerMemoryMB     *float64 `json:"layer_memory_mb,omitempty"`
	LayerComputeGFLOP *float64 `json:"layer_compute_gflops,omitempty"`
	MemoryOperations  int      `json:"memory_operations"`
	ComputeOperations int      `json:"compute_operations"`
}

// ComponentBegin is the beginning of a run of nodes that have one layer and component.
type ComponentBegin struct {
	Header
	Exec          uint64 `json:"exec"`
	ComponentType string `json:"component_type"`
	LayerID       int    `json:"layer_id"`
}

// ComponentEnd is the end of such a run.
type ComponentEnd struct {
	Header
	Exec          uint64 `json:"exec"`
	ComponentType string `json:"component_type"`
	LayerID       int    `json:"layer_id"`
	DurationUS    int64  `json:"duration_us"`
	DurationNS    int64  `json:"duration_ns"`
	NodeCount     int    `json:"node_count"`
}

// Compute is nodes that were computed: one op, a range of nodes or a whole graph, as TimeSource says. Every node of
// an execution is in exactly one of its compute events that has no Within. One that has is an op of a range or
// graph that was timed as a whole, whose event has its time, FLOPs and bytes; GFLOP alone is the op's, and not in
// the other's.
type Compute struct {
	Header
	ResourceID           string     `json:"resource_id"`
	Exec                 uint64     `json:"exec"`
	Graph                uint64     `json:"graph"`
	OpSeq                int        `json:"op_seq"`
	Operation            string     `json:"operation"`
	Name                 string     `json:"name,omitempty"`
	ComponentType        string     `json:"component_type"`
	LayerID              int        `json:"layer_id"`
	Phase                string     `json:"phase"`
	InputTensors         []string   `json:"input_tensors,omitempty"`
	OutputShape          []int64    `json:"output_shape,omitempty"`
	Precision            string     `json:"precision,omitempty"`
	Within               string     `json:"within,omitempty"`
	NodeCount            int        `json:"node_count,omitempty"`
	TimeSource           TimeSource `json:"time_source,omitempty"`
	DurationNS           *int64     `json:"duration_ns,omitempty"`
	DurationUS           *int64     `json:"estimated_duration_us,omitempty"`
	LookingNS            *int64     `json:"looking_ns,omitempty"`
	FLOPs                *int64     `json:"flops,omitempty"`
	FLOPsUnmasked        *int64     `json:"flops_unmasked,omitempty"`
	OpsWithoutFLOPs      int        `json:"ops_without_flops,omitempty"`
	OpsWithoutMask       int        `json:"ops_without_mask,omitempty"`
	BytesRead            *int64     `json:"bytes_read,omitempty"`
	BytesWritten         *int64     `json:"bytes_written,omitempty"`
	OpsWithoutBytes      int        `json:"ops_without_bytes,omitempty"`
	GFLOP                *float64   `json:"compute_intensity_gflops,omitempty"`
	GFLOPsPerS           *float64   `json:"gflops_per_s,omitempty"`
	GBPerS               *float64   `json:"gb_per_s,omitempty"`
	MemoryThroughputGBPS *float64   `json:"memory_throughput_gbps,omitempty"`
	ArithmeticIntensity  *float64   `json:"arithmetic_intensity,omitempty"`
	RooflineShare        *float64   `json:"roofline_share,omitempty"`
	ParallelismFactor    *int       `json:"parallelism_factor,omitempty"`
	SMUtilization        *float64   `json:"sm_utilization_percent,omitempty"`
}

// Handoff is tensors that one component computed and another one reads.
type Handoff struct {
	Header
	ResourceID            string   `json:"resource_id"`
	Exec                  uint64   `json:"exec"`
	FromComponent         string   `json:"from_component"`
	ToComponent           string   `json:"to_component"`
	Through               string   `json:"through,omitempty"`
	FromLayerID           int      `json:"from_layer_id"`
	LayerID               int      `json:"layer_id"`
	Tensors               []string `json:"tensors"`
	DataBytes             int64    `json:"data_bytes"`
	DataSizeMB            float64  `json:"data_size_mb"`
	TransferBandwidthGBPS *float64 `json:"transfer_bandwidth_gbps,omitempty"`
	MemoryPressure        string   `json:"memory_pressure,omitempty"`
}

// MLP is a projection of a feed-forward network, or its activation.
type MLP struct {
	Header
	ResourceID             string   `json:"resource_id"`
	Exec                   uint64   `json:"exec"`
	OpSeq                  int      `json:"op_seq"`
	Operation              string   `json:"mlp_operation"`
	LayerID                int      `json:"layer_id"`
	WeightShape            []int64  `json:"weight_shape,omitempty"`
	ActivationShape        []int64  `json:"activation_shape"`
	IntermediateSizeMB     float64  `json:"intermediate_size_mb"`
	ActivationMemoryPeakMB *float64 `json:"activation_memory_peak_mb,omitempty"`
	ActivationFunction     string   `json:"activation_function,omitempty"`
}

// Graph is one execution of a graph: one micro-batch, or work on the memory. Its phase is prefill where any of its
// tokens is a prompt's; PrefillTokens and DecodeTokens count its tokens by their own phase, and are absent of
// set-up, whose tokens have none.
type Graph struct {
	Header
	Exec            uint64 `json:"exec"`
	Graph           uint64 `json:"graph"`
	Phase           string `json:"phase"`
	Tokens          int    `json:"tokens"`
	PrefillTokens   *int   `json:"prefill_tokens,omitempty"`
	DecodeTokens    *int   `json:"decode_tokens,omitempty"`
	TokenFirst      *int64 `json:"token_first,omitempty"`
	Outputs         int    `json:"outputs"`
	NodeCount       int    `json:"node_count"`
	Drafts          bool   `json:"drafts,omitempty"`   // a draft model computed it
	Rejected        int64  `json:"rejected,omitempty"` // see [SessionEnd]
	Reused          bool   `json:"reused"`
	Status          int    `json:"status"`
	FLOPs           *int64 `json:"flops,omitempty"`
	FLOPsUnmasked   *int64 `json:"flops_unmasked,omitempty"`
	OpsWithoutFLOPs int    `json:"ops_without_flops,omitempty"`
	OpsWithoutMask  int    `json:"ops_without_mask,omitempty"`
	BytesRead       *int64 `json:"bytes_read,omitempty"`
	BytesWritten    *int64 `json:"bytes_written,omitempty"`
	OpsWithoutBytes int    `json:"ops_without_bytes,omitempty"`
	// DurationNS is from the moment when ggml was given the graph to its end; on a device, to the return of the
	// first synchronisation after it. Absent where that was one for several graphs.
	DurationNS *int64 `json:"duration_ns,omitempty"`
	// TimeSource is there on a device: TimeSync. SyncWaitNS is how long the synchronisation took: if it is next to
	// nothing, the device was done some time before.
	TimeSource *TimeSource `json:"time_source,omitempty"`
	SyncWaitNS *int64      `json:"sync_wait_ns,omitempty"`
	// TimedNS is the sum of the durations of what was timed inside, LookingNS what each look into it cost, Looks
	// how many there were.
	TimedNS   *int64 `json:"timed_ns,omitempty"`
	LookingNS *int64 `json:"looking_ns,omitempty"`
	Looks     int    `json:"looks,omitempty"`
}
