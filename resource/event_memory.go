package resource

// Allocation is memory that a ggml backend allocated, or took from a mapped file; or, with TensorBytes, a weight in
// such memory. The sizes in MiB of all add up to what was allocated: a buffer of weights has none, its weights
// have.
type Allocation struct {
	Header
	ResourceID             string   `json:"resource_id"`
	BufferID               uint64   `json:"buffer_id"`
	ComponentType          string   `json:"component_type"`
	LayerID                int      `json:"layer_id"`
	Name                   string   `json:"name,omitempty"`
	AllocationBytes        uint64   `json:"allocation_bytes,omitempty"`
	TensorBytes            *uint64  `json:"tensor_bytes,omitempty"`
	AllocationSizeMB       *float64 `json:"allocation_size_mb,omitempty"`
	MemoryType             string   `json:"memory_type"`
	BufferType             string   `json:"buffer_type"`
	Device                 string   `json:"device,omitempty"`
	Mapped                 bool     `json:"mapped"`
	MemoryAddress          string   `json:"memory_address"`
	LiveBytes              uint64   `json:"live_bytes"`
	TensorShape            []int64  `json:"tensor_shape,omitempty"`
	Precision              string   `json:"precision,omitempty"`
	EstimatedBandwidthGBPS *float64 `json:"estimated_bandwidth_gbps,omitempty"`
	CompressionRatio       *float64 `json:"compression_ratio,omitempty"`
}

// Deallocation is memory that a ggml backend freed. ResourceID is that of its allocation.
type Deallocation struct {
	Header
	ResourceID       string  `json:"resource_id"`
	BufferID         uint64  `json:"buffer_id"`
	ComponentType    string  `json:"component_type"`
	LayerID          int     `json:"layer_id"`
	AllocationBytes  uint64  `json:"allocation_bytes"`
	AllocationSizeMB float64 `json:"allocation_size_mb"`
	MemoryType       string  `json:"memory_type"`
	MemoryAddress    string  `json:"memory_address"`
	LiveBytes        uint64  `json:"live_bytes"`
	LifetimeUS       int64   `json:"lifetime_us"`
}

// KV is what happened to cells of a sequence in one layer of a memory. Positions are CacheStartPos ≤ p < CacheEndPos.
type KV struct {
	Header
	ResourceID       string   `json:"resource_id"`
	Exec             *uint64  `json:"exec,omitempty"`
	CacheType        string   `json:"cache_type"`
	Cache            string   `json:"cache"`
	LayerID          int      `json:"layer_id"`
	SeqID            *int32   `json:"seq_id,omitempty"`
	CacheStartPos    *int32   `json:"cache_start_pos,omitempty"`
	CacheEndPos      *int32   `json:"cache_end_pos,omitempty"`
	Cells            int      `json:"cells"`
	KeyBytes         *int64   `json:"key_bytes,omitempty"`
	ValueBytes       *int64   `json:"value_bytes,omitempty"`
	KeyWritten       *int64   `json:"key_bytes_written,omitempty"`
	ValueWritten     *int64   `json:"value_bytes_written,omitempty"`
	KeyCacheSizeMB   *float64 `json:"key_cache_size_mb,omitempty"`
	ValueCacheSizeMB *float64 `json:"value_cache_size_mb,omitempty"`
	CacheHitRatio    *float64 `json:"cache_hit_ratio,omitempty"`
	ReusedCells      int64    `json:"reused_cells,omitempty"`
	NeededCells      int64    `json:"needed_cells,omitempty"`
	CacheOperation   string   `json:"cache_operation"`
	Reason           string   `json:"reason,omitempty"`
}
