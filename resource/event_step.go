package resource

// Model describes a context and its model, once per context, as LRI's companion log does. What llama.cpp does not
// say is absent.
type Model struct {
	Header
	Model   ModelInfo   `json:"model_info"`
	Context ContextInfo `json:"context_info"`
	Memory  MemoryUsage `json:"memory_usage"`
}

// ModelInfo is what a model says of itself.
type ModelInfo struct {
	NVocab      int     `json:"n_vocab,omitempty"`
	NCtxTrain   int     `json:"n_ctx_train,omitempty"`
	NEmbd       int     `json:"n_embd,omitempty"`
	NLayer      int     `json:"n_layer,omitempty"`
	NHead       int     `json:"n_head,omitempty"`
	NHeadKV     int     `json:"n_head_kv,omitempty"`
	NParams     uint64  `json:"n_params,omitempty"`
	ModelSizeMB float64 `json:"model_size_mb,omitempty"`
}

// ContextInfo is what a program asked of a context.
type ContextInfo struct {
	NCtx    uint32 `json:"n_ctx,omitempty"`
	NBatch  uint32 `json:"n_batch,omitempty"`
	NUBatch uint32 `json:"n_ubatch,omitempty"`
	NSeqMax uint32 `json:"n_seq_max,omitempty"`
}

// MemoryUsage is the buffers of the process when a context computes its first graph.
type MemoryUsage struct {
	ModelSizeBytes uint64 `json:"model_size_bytes,omitempty"`
	WeightsBytes   uint64 `json:"weights_bytes"`
	ComputeBytes   uint64 `json:"compute_bytes"`
	OtherBytes     uint64 `json:"other_bytes"` // caches, outputs
	// ContextEstimate is n_ctx · n_embd · n_layer · 2 · 4, LRI's estimate, only with --legacy-estimates.
	ContextEstimate *uint64 `json:"context_size_estimate_bytes,omitempty"`
}

// TensorInfo describes a tensor of a context's graphs, before the first execution that uses it.
type TensorInfo struct {
	Header
	Exec     uint64         `json:"exec"`
	Graph    uint64         `json:"graph"`
	Role     string         `json:"role"`
	StepName string         `json:"step_name"`
	LayerID  int            `json:"layer_id"`
	Metadata TensorMetadata `json:"metadata"`
}

// TensorMetadata is what a graph says of a tensor. Of its values nothing is known here: activations.stream holds
// those that are captured.
type TensorMetadata struct {
	Name         string    `json:"name"`
	Operation    string    `json:"operation"`
	Shape        []int64   `json:"shape"`
	DType        string    `json:"dtype"`
	ElementCount int64     `json:"element_count"`
	MemoryBytes  *int64    `json:"memory_bytes,omitempty"`
	Timestamp    Timestamp `json:"timestamp"`
}

// StepBegin is the beginning of an execution, as LRI's companion log has it.
type StepBegin struct {
	Header
	Exec     uint64 `json:"exec"`
	StepName string `json:"step_name"`
}

// StepEnd is the end of an execution, with what it did in figures.
type StepEnd struct {
	Header
	Exec       uint64      `json:"exec"`
	StepName   string      `json:"step_name"`
	DurationMS *float64    `json:"duration_ms,omitempty"` // absent of one of several that a device computed at once
	Metrics    StepMetrics `json:"metrics"`
}

// StepMetrics are the figures of a step.
type StepMetrics struct {
	Tokens          int      `json:"tokens"`
	TokensPerS      *float64 `json:"tokens_per_s,omitempty"`
	FLOPs           *int64   `json:"flops,omitempty"`
	OpsWithoutFLOPs int      `json:"ops_without_flops,omitempty"`
	BytesRead       *int64   `json:"bytes_read,omitempty"`
	BytesWritten    *int64   `json:"bytes_written,omitempty"`
	OpsWithoutBytes int      `json:"ops_without_bytes,omitempty"`
}
