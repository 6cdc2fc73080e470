package export

import (
	"encoding/json"
	"fmt"

	"github.com/llamatap/llamatap/resource"
)

// event holds the keys of all kinds of resource events that a timeline shows. A figure that is absent is nil.
type event struct {
	MonoNS        int64               `json:"mono_ns"`
	Ctx           uint32              `json:"ctx"`
	Exec          uint64              `json:"exec"`
	Phase         string              `json:"phase"`
	Operation     string              `json:"operation"`
	Name          string              `json:"name"`
	ComponentType string              `json:"component_type"`
	LayerID       int                 `json:"layer_id"`
	Within        string              `json:"within"`
	TimeSource    resource.TimeSource `json:"time_source"`
	DurationNS    *int64              `json:"duration_ns"`
	FLOPs         *int64              `json:"flops"`
	BytesRead     *int64              `json:"bytes_read"`
	BytesWritten  *int64              `json:"bytes_written"`
	NodeCount     int                 `json:"node_count"`

	Tokens  int    `json:"tokens"`
	TimedNS *int64 `json:"timed_ns"`

	TokenIndex int64   `json:"token_index"`
	TokenID    int32   `json:"token_id"`
	TokenText  *string `json:"token_text"`
	TokenIDs   []int32 `json:"token_ids"`
	Pos        int32   `json:"pos"`
	SeqID      *int32  `json:"seq_id"`
	LatencyNS  *int64  `json:"latency_ns"`
	First      bool    `json:"first"`

	Cache          string `json:"cache"`
	Cells          int64  `json:"cells"`
	CacheOperation string `json:"cache_operation"`
	LiveBytes      *int64 `json:"live_bytes"`
	TensorBytes    *int64 `json:"tensor_bytes"`

	GPUIndex    int      `json:"gpu_index"`
	WindowNS    int64    `json:"window_ns"`
	Utilization *float64 `json:"gpu_utilization_percent"`
	MemoryUsed  *int64   `json:"gpu_memory_used_bytes"`
	SMClock     *int64   `json:"sm_clock_mhz"`
	PowerW      *float64 `json:"gpu_power_w"`
	Domain      string   `json:"domain"`
	EnergyJ     float64  `json:"energy_j"`

	Kind  string `json:"kind"` // of the events that are lost
	Cause string `json:"cause"`
	Count uint64 `json:"count"`
}

func (e *event) read(line []byte, kind resource.Kind) error {
	*e = event{LayerID: -1}
	if err := json.Unmarshal(line, e); err != nil {
		return fmt.Errorf("read %v: %w", kind, err)
	}
	return nil
}

// orMinusOne returns a figure, or -1 where it is absent.
func orMinusOne(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}
