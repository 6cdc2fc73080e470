package resource

import "github.com/llamatap/llamatap/store/label"

// Kind is the type of an event. Its name is the value of the key "event".
type Kind uint8

// The kinds. The first thirteen are LRI's.
const (
	KindSessionStart   Kind = iota // recording begins
	KindTrackingBegin              // from here on the recorder records what the tap reports
	KindLayerBegin                 // a layer's first node begins
	KindLayerEnd                   // a layer's last node was computed
	KindComponentBegin             // a run of nodes of one layer and component begins
	KindComponentEnd               // its last node was computed
	KindAllocation                 // a ggml backend allocated memory
	KindCompute                    // nodes were computed
	KindHandoff                    // tensors passed from one component to another
	KindKV                         // cells of a KV cache were written or given up
	KindMLP                        // a projection or activation of a feed-forward network
	KindSummary                    // totals of the session
	KindSessionEnd                 // recording ended
	KindDeallocation               // a ggml backend freed memory
	KindRouting                    // experts that were chosen for a token
	KindSampling                   // what a sampler chose from
	KindInputTokens                // prompt tokens of an execution
	KindOutputToken                // a generated token that was computed on
	KindPhase                      // a context went over to another phase
	KindLoss                       // events that are not in the file
	KindLevel                      // the level was changed
	KindGraph                      // a graph was executed
	KindModel                      // a context computes its first graph: what it and its model are
	KindTensor                     // a tensor is used by an execution for the first time
	KindStepBegin                  // an execution begins
	KindStepEnd                    // it has ended
	KindGPU                        // how a GPU was used in an interval
	KindRAPL                       // what processors or memory used in an interval
	KindEnergy                     // what a device used in the executions of a phase
	KindRequestEnergy              // what a device used in those of a request
	KindGraphEnergy                // what a device used in one execution
	kindCount
)

var kindNames = label.Names[Kind]{What: "event", Use: "docs/EVENTS.md lists those that there are", All: []string{
	"resource_session_start", "resource_tracking_begin", "layer_begin", "layer_end", "component_begin", "component_end",
	"memory_allocation", "compute_execution", "component_handoff", "kv_cache_operation", "mlp_operation",
	"resource_session_summary",
	"resource_session_end", "memory_deallocation", "expert_routing", "sampling_state", "input_tokens", "output_token",
	"phase", "loss",
	"level", "graph_execution", "model_metrics", "tensor_metadata", "step_begin", "step_end",
	"gpu_sample", "rapl_sample", "energy", "request_energy", "graph_energy",
}}

// Kinds are the names of all kinds; index k is that of Kind(k).
func Kinds() []string { return kindNames.All }

// String returns the kind's name as written in files.
func (k Kind) String() string { return kindNames.Text(k) }

// ParseKind is the inverse of String.
func ParseKind(s string) (Kind, error) { return kindNames.Parse(s) }

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's name.
func (k *Kind) UnmarshalText(text []byte) error { return label.Unmarshal(k, text, ParseKind) }
