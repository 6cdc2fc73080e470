package tensors

import (
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
)

// Summary is what a run directory or a stream holds, computed from the index alone.
type Summary struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// a manifest stands in the run directory and is what was sealed; a directory without one is not a result
	Sealed  bool   `json:"sealed"`
	broken  bool   // its manifest is damaged
	Assumed string `json:"assumed,omitempty"` // what was assumed because no index says it
	Model   string `json:"model,omitempty"`
	Arch    string `json:"arch,omitempty"`

	Totals
	// distinct token rows that were recorded; 0 when nothing says which
	Tokens        int64            `json:"tokens"`
	TokensByPhase map[string]int64 `json:"tokens_by_phase,omitempty"` // the same by prefill, decode …
	// that the tokens belong to, as far as it is known
	Requests        int64   `json:"requests,omitempty"`
	PacketsPerToken float64 `json:"packets_per_token,omitempty"`
	BytesPerToken   float64 `json:"bytes_per_token,omitempty"` // stored bytes
	// as the metadata say, in prompts and answers; 0 where they do not
	computed int64

	// Running is true if a process was still writing the run when it was opened.
	Running bool     `json:"running,omitempty"`
	Damage  []string `json:"damage,omitempty"` // what opening the files showed to be wrong; Verify finds more

	// of the run, whatever was selected of it; absent where its metadata have none
	Account *rundir.Account `json:"account,omitempty"`
	Rotated *rundir.Rotated `json:"rotated,omitempty"` // what the run gave back
	Moved   *rundir.Moved   `json:"moved,omitempty"`   // what is not in this directory, but in object storage
	// Steering is what was added to the residual stream, one after the other.
	Steering []rundir.Steering `json:"steering,omitempty"`
	// packets are missing (Lost), or values are not the model's (Altered)
	Lossy      bool          `json:"lossy"`
	Lost       bool          `json:"lost"`              // packets are missing, or the run is marked so
	Losses     []rundir.Loss `json:"losses"`            // empty, never null, when nothing was lost
	Altered    []Altering    `json:"altered,omitempty"` // what made stored values differ from the model's
	Saturated  uint64        `json:"saturated"`
	Underflown uint64        `json:"underflown"`
	Layers     []Layer       `json:"layers"` // by layer number; -1 is what belongs to none
}

// Kind says what a path turned out to be.
type Kind string

// The kinds of a path.
const (
	KindRun     Kind = "run"     // a run directory
	KindStream  Kind = "stream"  // a stream with its index
	KindForeign Kind = "foreign" // a stream without index, as STRAP-LLM writes them
)

// Totals counts packets and their bytes.
type Totals struct {
	Packets     int64   `json:"packets"`
	BytesSource int64   `json:"bytes_source,omitempty"` // taken from the tensors; absent when no index says it
	BytesRaw    int64   `json:"bytes_raw"`              // after conversion, before the codec
	BytesStored int64   `json:"bytes_stored"`           // payloads on disk
	Ratio       float64 `json:"ratio"`                  // raw / stored; 0 when nothing is stored
	// Error is the largest error of a row that a bounded codec made, as it was measured; zero, and absent, where
	// none made one.
	Error codec.Achieved `json:"error,omitzero"`
}

func (t *Totals) add(o Totals) {
	t.Packets += o.Packets
	t.BytesSource += o.BytesSource
	t.BytesRaw += o.BytesRaw
	t.BytesStored += o.BytesStored
	t.Error = t.Error.Or(o.Error)
	t.Ratio = 0
	if t.BytesStored > 0 {
		t.Ratio = float64(t.BytesRaw) / float64(t.BytesStored)
	}
}

// Altering is something that stores values with an error.
type Altering struct {
	By string `json:"by"` // "codec q", "dtype f16"
	// Bound is the error that a row may have at most, by Metric, as it was asked for: for maxabs a share of the
	// row's largest value, for nrmse of its root mean square. Absent where nothing says it; Totals.Error is what
	// was measured.
	Bound  float64 `json:"bound,omitempty"`
	Metric string  `json:"metric,omitempty"`
}

// Layer is one layer of the model.
type Layer struct {
	Layer int `json:"layer"`
	Totals
	Components []Component `json:"components"`
	Tensors    []Tensor    `json:"tensors"`
}

// Component is one component of a layer.
type Component struct {
	Component label.Component `json:"component"`
	Tensors   int             `json:"tensors"`
	Totals
}

// Tensor is everything captured under one name in one context.
type Tensor struct {
	Name      string          `json:"name"`
	Ctx       uint32          `json:"ctx"`
	Layer     int             `json:"layer"`
	Op        string          `json:"op,omitempty"`
	Component label.Component `json:"component"`
	DType     string          `json:"dtype"` // as stored
	Codec     string          `json:"codec"`
	Shape     []int64         `json:"shape"` // ggml order, fastest first; 0 where executions differ
	Rows      label.RowKind   `json:"rows"`  // what the dimension RowDim runs over
	RowDim    int             `json:"row_dim"`
	Tokens    int64           `json:"tokens"` // token rows captured
	Totals
	Stats *Stats `json:"stats,omitempty"`
}

// tensorKey distinguishes tensors of the same name in several contexts.
type tensorKey struct {
	ctx  uint32
	name string
}

func (t Tensor) key() tensorKey { return tensorKey{t.Ctx, t.Name} }
