package memory

import (
	"encoding/json"

	"github.com/llamatap/llamatap/memtrace"
)

// Report is what a run's tables say about its memory. A figure that is not known is nil, and left out of files.
type Report struct {
	Path    string
	Version string // of the table's schema
	Rows    int64  // of the table of accesses
	Parts   int    // files that it consists of
	// Collectors are the sources of the table's rows, and how many rows each recorded.
	Collectors map[string]int64
	// TimeSources say what the times of the ledger's rows are the beginning of, and of how many rows.
	TimeSources map[string]int64
	BeginUnixNS int64 // first and last access, Unix time
	EndUnixNS   int64
	Windows     []float64 // lengths of working sets' windows, in seconds
	Thresholds  memtrace.Thresholds
	Types       []Type
	Regions     []Region // by bytes that were accessed, most first
	Traffic     memtrace.Traffic
	KVBlocks    []KVBlocks
	Samples     []Samples
	Agreement   []Agreement
	// Symbols, DataSymbols and Processes are what samples say of functions, variables and processes, those first
	// that most events are of, where they were asked for.
	Symbols, DataSymbols, Processes []Use
	// Phases are those of a recorded program that has markers, in the order in which they began first.
	Phases []Phase
	// GivenBack says how much of the table is not there any more; "" where it is whole, or nothing is known.
	GivenBack string
	// Notes say what could not be computed, and why.
	Notes []string
}

// Sources of figures.
const (
	Computed  = "computed"  // out of what graphs say
	Measured  = "measured"  // every event was reported
	Estimated = "estimated" // from samples, each of which stands for several events
)

// Figures are the metrics of a region, or of those of a type.
type Figures struct {
	Source        string   `json:"source"`
	Reads         int64    `json:"reads"` // accesses
	Writes        int64    `json:"writes"`
	BytesRead     uint64   `json:"bytes_read"`
	BytesWritten  uint64   `json:"bytes_written"`
	ReadWrite     *float64 `json:"read_write_ratio,omitempty"` // of bytes
	WriteOnce     *float64 `json:"write_once_ratio,omitempty"`
	ReadFrequency *float64 `json:"read_freq_hz,omitempty"`
	// Retention is in seconds, IAI in nanoseconds, Reuse in bytes.
	Retention     *Retention   `json:"retention,omitempty"`
	IAI           *Spread      `json:"iai_ns,omitempty"`
	Reuse         *Spread      `json:"reuse_distance_bytes,omitempty"`
	Stride        *Spread      `json:"stride_bytes,omitempty"`
	Locality      *float64     `json:"locality_score,omitempty"`
	WorkingSet    []WorkingSet `json:"working_set,omitempty"`
	Label         string       `json:"mrm_label,omitempty"`
	LabelCensored string       `json:"mrm_label_censored,omitempty"`
	// Fusible and Padded are bytes that are in neither of the sums above where a backend kept results in registers
	// or passed over masked cells: Fusible is counted in them all the same, Padded is not.
	Fusible uint64 `json:"bytes_fusible,omitempty"`
	Padded  uint64 `json:"bytes_padded,omitempty"`
	// Coarse, Hulls and Grain say where ranges are not exact; Unsized counts accesses of which it is unknown how
	// many bytes they touched.
	Coarse  int64  `json:"accesses_without_ranges,omitempty"`
	Hulls   int64  `json:"accesses_taken_as_hulls,omitempty"`
	Unsized int64  `json:"accesses_without_bytes,omitempty"`
	Grain   uint64 `json:"granularity_bytes,omitempty"`
	// Observed is of a run that has samples alone.
	Observed *Observed `json:"observed,omitempty"`
	// Metrics are what the figures were taken from, with all lives.
	Metrics *memtrace.Metrics `json:"-"`
}

// Observed are figures of what samples saw, by mrm-trace's definitions: retention is from the first write of a
// region to its last read that were seen, the working set all pages that were seen, write-once of the addresses
// that were seen. What was not seen would change all of them.
type Observed struct {
	Regions      int      `json:"n_regions"`
	RetentionP50 *float64 `json:"retention_p50_s,omitempty"` // nil: no read was seen
	RetentionP90 *float64 `json:"retention_p90_s,omitempty"`
	RetentionP99 *float64 `json:"retention_p99_s,omitempty"`
	WriteOnce    *float64 `json:"write_once_ratio_mean,omitempty"` // nil: no write was seen
	Pages        int64    `json:"unique_pages_total"`
	Suitability  string   `json:"suitability,omitempty"`
}

// Type is a type of region.
type Type struct {
	Type    string `json:"region_type"`
	Regions int    `json:"n_regions"` // that were accessed
	// of all regions of the type, accessed or not; of activations the memory that they share
	Bytes uint64 `json:"bytes"`
	Figures
}

// Region is one region that was accessed.
type Region struct {
	ID     int    `json:"region_id"`
	Type   string `json:"region_type"`
	Name   string `json:"name,omitempty"`
	Layer  *int64 `json:"layer,omitempty"`
	KV     string `json:"kv,omitempty"`
	Bytes  uint64 `json:"bytes"`
	Device string `json:"device,omitempty"`
	Figures
	// PerStep is how many bytes of it an execution of a graph accessed that accessed any.
	PerStep *Spread `json:"bytes_per_step,omitempty"`
}

// Retention is how long what was written was needed, in seconds, counted in bytes.
type Retention struct {
	Bytes         int64    `json:"bytes"` // that were written, as often as they were
	P50           float64  `json:"p50_s"`
	P90           float64  `json:"p90_s"`
	P99           float64  `json:"p99_s"`
	Max           float64  `json:"max_s"`
	Mean          float64  `json:"mean_s"`
	CensoredShare float64  `json:"censored_share"`
	KM50          *float64 `json:"km_p50_s,omitempty"` // by Kaplan and Meier; left out where too much is censored
	KM90          *float64 `json:"km_p90_s,omitempty"`
	KM99          *float64 `json:"km_p99_s,omitempty"`
}

// Spread is how values are spread.
type Spread struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	Min   int64   `json:"min"`
	P50   *int64  `json:"p50,omitempty"`
	P90   *int64  `json:"p90,omitempty"`
	P99   *int64  `json:"p99,omitempty"`
	Max   int64   `json:"max"`
}

// WorkingSet is how many different bytes were touched in a window, on average over all windows, and at most.
type WorkingSet struct {
	WindowS   float64 `json:"window_s"`
	MeanBytes float64 `json:"mean_bytes"`
	MaxBytes  int64   `json:"max_bytes"`
}

// Seconds is how long the trace is.
func (r *Report) Seconds() float64 { return float64(r.EndUnixNS-r.BeginUnixNS) / 1e9 }

// Type is what is known of a type of region; nil: it was not accessed.
func (r *Report) Type(name string) *Type {
	for i := range r.Types {
		if r.Types[i].Type == name {
			return &r.Types[i]
		}
	}
	return nil
}

// note says what could not be computed.
func (r *Report) note(text string) { r.Notes = append(r.Notes, text) }

// MarshalJSON writes the report with the keys of mrm-trace's compute_all, and what this package adds to them.
func (r *Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Path        string              `json:"path"`
		Version     string              `json:"llamatap_schema_version"`
		Rows        int64               `json:"rows"`
		Parts       int                 `json:"parts"`
		Collectors  map[string]int64    `json:"collectors"`
		TimeSources map[string]int64    `json:"time_sources,omitempty"`
		Begin       int64               `json:"begin_unix_ns"`
		Seconds     float64             `json:"seconds"`
		Windows     []float64           `json:"windows_s"`
		Thresholds  memtrace.Thresholds `json:"thresholds"`
		GivenBack   string              `json:"given_back,omitempty"`
		Notes       []string            `json:"notes,omitempty"`
		computeAll
		Types     []Type      `json:"types"`
		Steps     []stepRow   `json:"bytes_per_step,omitempty"`
		Bandwidth *bandwidth  `json:"bandwidth,omitempty"`
		KVBlocks  []KVBlocks  `json:"kv_blocks,omitempty"`
		Samples   []Samples   `json:"samples,omitempty"`
		Agreement []Agreement `json:"agreement,omitempty"`
		Symbols   []Use       `json:"by_symbol,omitempty"`
		Data      []Use       `json:"by_data_symbol,omitempty"`
		Processes []Use       `json:"by_process,omitempty"`
		Phases    []Phase     `json:"by_phase,omitempty"`
	}{r.Path, r.Version, r.Rows, r.Parts, r.Collectors, r.TimeSources, r.BeginUnixNS, r.Seconds(), r.Windows,
		r.Thresholds, r.GivenBack, r.Notes,
		computeAllOf(r), r.Types, stepsOf(r), bandwidthOf(r), r.KVBlocks, r.Samples, r.Agreement, r.Symbols,
		r.DataSymbols, r.Processes, r.Phases})
}
