package resource

// Phase records that a context's executions are of another phase from this one on; or, with LastExec, what executions
// were that had been reported before it was decided.
type Phase struct {
	Header
	Phase    string  `json:"phase"`
	Previous string  `json:"previous,omitempty"`
	Exec     uint64  `json:"exec"`
	LastExec *uint64 `json:"last_exec,omitempty"`
}

// Loss says how many events of a kind are not in the file, since the loss event before it.
type Loss struct {
	Header
	Kind  string `json:"kind"`
	Cause string `json:"cause"`
	Count uint64 `json:"count"`
}

// LevelChange records that another level holds from the next graph on.
type LevelChange struct {
	Header
	Level    Level `json:"level"`
	Previous Level `json:"previous"`
}

// PhaseTotals is what the executions of a phase did.
type PhaseTotals struct {
	Graphs     int64  `json:"graphs"`
	Tokens     int64  `json:"tokens"`
	DurationNS int64  `json:"duration_ns"`
	FLOPs      *int64 `json:"flops,omitempty"`
	// OpsWithoutFLOPs counts computed nodes whose FLOPs are not in FLOPs, because nothing knows them.
	OpsWithoutFLOPs int64 `json:"ops_without_flops,omitempty"`
}

// Summary is the totals of a session. The memory is that of ggml's backends.
type Summary struct {
	Header
	TotalMemoryMB     float64           `json:"total_memory_mb"`
	TotalComputeGFLOP float64           `json:"total_compute_gflops"`
	ComponentFlows    int64             `json:"component_flows"`
	PeakLiveBytes     uint64            `json:"peak_live_bytes"`
	AllocatedBytes    uint64            `json:"allocated_bytes"`
	FreedBytes        uint64            `json:"freed_bytes"`
	FLOPs             int64             `json:"flops"`
	OpsWithoutFLOPs   int64             `json:"ops_without_flops,omitempty"`
	Graphs            int64             `json:"graphs"`
	Tokens            int64             `json:"tokens"`
	Events            uint64            `json:"events"`
	Lost              map[string]uint64 `json:"lost,omitempty"` // by cause
}

// SessionEnd ends a file of events. Phases has one entry per phase that there was. Rejected are the tokens of drafts
// that were computed and taken back since the last graph_execution of their context, each of which has those before it.
type SessionEnd struct {
	Header
	DurationNS int64                  `json:"duration_ns"`
	Rejected   int64                  `json:"rejected,omitempty"`
	Phases     map[string]PhaseTotals `json:"phases"`
}
