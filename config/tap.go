package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Recorder names one of the things that can be recorded.
type Recorder string

// The recorders.
const (
	Activations Recorder = "activations" // tensors of the graph, to activations.stream
	Resource    Recorder = "resource"    // what memory and computing cost, to resource.jsonl
	KV          Recorder = "kv"          // the life of the KV cache's blocks, to kv_block_lifecycle.parquet
	Regions     Recorder = "regions"     // what lies where in memory, and how ops used it, to region_map.parquet
	Ledger      Recorder = "ledger"      // what every operation read and wrote, to trace.parquet
	Host        Recorder = "host"        // what the kernel did meanwhile, to block_io.jsonl, system_metrics.jsonl …
	Samples     Recorder = "samples"     // sampled accesses to memory, to trace.parquet
	Requests    Recorder = "requests"    // requests of a server, to requests.parquet
	Steering    Recorder = "steering"    // which vectors were added to the residual stream, to metadata.json
)

// Overflow is what happens when the model computes faster than captured tensors can be packed.
type Overflow string

// The overflow policies.
const (
	OverflowBlock Overflow = "block" // the model waits: nothing is lost
	OverflowDrop  Overflow = "drop"  // the tensor is left out, counted, and the run is marked lossy
)

// OnFailure is what happens to the program when the recording fails under it.
type OnFailure string

// What happens to the program.
const (
	FailureContinue OnFailure = "continue" // it continues without being recorded
	FailureStop     OnFailure = "stop"     // it is asked to end, and killed where it does not
)

// Tap is everything that the --tap-… settings say. Fill it with Parse, then call Resolve;
// the exported fields are valid after that. The zero value has no flag given. A Tap is not for concurrent use.
type Tap struct {
	Preset       string  // "" when none was chosen
	Purpose      Purpose // "" when none was given; with one, Resolve is called again when the architecture is known
	Reason       string  // with Purpose: one sentence on what it chose and why
	Granularity  ggmlhooks.Granularity
	SamplingRate float64 // share of elements that sampled_slices keeps, in (0, 1]
	Seed         uint64  // makes the choice of sampled_slices reproducible
	Layers       ggmlhooks.LayerSet
	Tensors      []string             // globs on node names; empty: every computed node
	Points       []ggmlhooks.PointRef // named points; with them, no Tensors means none besides
	Tokens       ggmlhooks.TokenRule
	StartOff     bool // nothing is captured until a command asks for it
	Attention    ggmlhooks.AttentionMode

	Codec          string  // none, lz4, zstd, zstd-shuffle, q or q-fse
	Error          float64 // that q and q-fse may make in a row
	ErrorMetric    string  // maxabs or nrmse
	DType          string  // what F32 tensors are stored as: f32, f16 or bf16
	Throughput     float64 // GB/s below which the summary says what held the capture back; 0: not stated
	Memory         Bytes   // bound of the memory that the capture takes
	DeviceMemory   *Bytes  // that captured tensors of one graph may hold until it is computed; nil: by what computes it
	MemoryCeiling  Bytes   // what the preset allows for Memory; 0: no preset, no ceiling
	Overflow       Overflow
	Workers        int    // codec workers; 0: as many as the machine suggests
	Out            string // folder in which run directories are made
	Store          string // URL of object storage that the run is copied to; "": none
	OnFailure      OnFailure
	Segment        Segment // as given; Segments says when a new one begins
	MaxDisk        MaxDisk
	MinFree        MinFree
	Preallocate    Bytes // room to keep on the disk ahead of what is written
	Sync           Sync
	Checkpoint     Checkpoint
	Sink           string // of what is recorded, in addition to the files; "": none
	Dataset        Dataset
	Resume         string        // the run to resume, ResumeNewest, or "": a new one
	ResourceLevel  string        // MINIMAL, DETAILED or VERBOSE; "": no events
	ResourceSample int           // one in so many executions is timed inside; 0: by what timing costs
	ResourcePath   string        // file that the events are appended to as well
	ResourceRate   int           // most events of a kind per second; 0: no limit
	ResourceRotate Bytes         // of a file of events; 0: there is one
	Legacy         bool          // LRI's estimates alongside what is measured
	KV             bool          // blocks of the KV cache are followed
	KVBlock        int           // cells of a block
	Requests       bool          // requests of a server are followed
	OTLP           string        // URL of their OpenTelemetry collector, "off", or "": as the environment says
	OTLPTexts      int           // most bytes of a prompt, and of an answer, in spans; 0: none
	KVEvents       KVEvents      // what is published of them
	RequestSample  []SampleRule  // whose tensors and tokens stay; nil: everybody's
	Regions        bool          // the map of memory is kept
	Ledger         string        // rows or windows; "": no accesses are recorded
	LedgerWindow   time.Duration // of windows
	Steer          Steer         // the vector that is added from the start
	Cold           bool          // the model's file is read when it is touched, not when it is loaded
	Host           []string      // collectors of what the kernel does, in the order of HostCollectors
	HostInterval   time.Duration // between two lines of one
	HostDetails    bool          // every fault is written
	Hosts          []HostAddress // other hosts of the run
	HostsToken     string        // file with the token of their agents

	Samples         []SampleChoice // collectors of sampled accesses; all of them run
	SamplesPeriod   uint64         // of perf; 0: what is usual
	SamplesRing     Bytes          // of each CPU; 0: as much as may be had
	ProcessInterval time.Duration  // between two lines of process.jsonl

	RedactText bool   // no text of prompts and tokens in any file
	ConfigFile string // "" when none was given

	flags     map[string]given // by name, as given on the command line
	origins   map[string]origin
	recorders []Recorder
	alone     bool // no flag asks for activations but --tap-attention
}

// Recording reports whether anything is recorded: a run directory exists exactly when it is true.
func (t *Tap) Recording() bool { return len(t.recorders) > 0 }

// Records reports whether the recorder runs.
func (t *Tap) Records(r Recorder) bool {
	return slices.Contains(t.recorders, r)
}

// AttentionAlone reports whether attention maps are all that was asked for: then nothing but what they need is
// captured.
func (t *Tap) AttentionAlone() bool {
	return t.Attention != ggmlhooks.AttentionNone && t.alone
}

// Selection returns which tensors are captured.
func (t *Tap) Selection() ggmlhooks.Selection {
	return ggmlhooks.Selection{
		Granularity:  t.Granularity,
		Layers:       t.Layers,
		Tensors:      append([]string(nil), t.Tensors...),
		Points:       slices.Clone(t.Points),
		Tokens:       t.Tokens,
		Attention:    t.Attention,
		SamplingRate: t.SamplingRate,
		Seed:         t.Seed,
	}
}

// Segments returns when a new segment begins: as --tap-segment says, and, where the disk rotates, at a
// share of the bound. A run of which a sample is kept has segments of at most [sampleSegment] by default.
func (t *Tap) Segments() Segment {
	s := t.Segment
	if t.KeepsSample() && s == (Segment{}) {
		s.Every = sampleSegment
	}
	if t.MaxDisk.Action == DiskRotate && s.Bytes == 0 {
		s.Bytes = t.MaxDisk.Bytes / segmentsPerDisk
	}
	return s
}

// Parts is the size of a file of events for which another was asked; 0: there is one. A bound that rotates needs files
// that can be given back.
func (m MaxDisk) Parts(asked Bytes) Bytes {
	if m.Action != DiskRotate || m.Bytes == 0 {
		return asked
	}
	part := m.Bytes / partsPerDisk
	if asked > 0 {
		part = min(part, asked)
	}
	return part
}

// partsPerDisk is into how many files of events a bound that rotates is cut at least.
const partsPerDisk = 32

// segmentsPerDisk is into how many segments a bound that rotates is cut where nothing says how large they are.
const segmentsPerDisk = 8

// CheckLayers refuses a layer list that names no layer of a model with n layers, or one beyond them.
func (t *Tap) CheckLayers(n int) error {
	if last := t.Layers.Max(); last >= n {
		return fmt.Errorf("%s names layer %d, and the model has layers 0 to %d: shorten the list",
			t.origins["layers"].where, last, n-1)
	}
	return nil
}

// CollectsHost reports whether a host collector was asked for.
func (t *Tap) CollectsHost(name string) bool { return slices.Contains(t.Host, name) }

// SamplesWith reports whether a collector of samples may run: that it was asked for, or is to take another one's place.
func (t *Tap) SamplesWith(name string) bool {
	return slices.ContainsFunc(t.Samples, func(c SampleChoice) bool { return slices.Contains(c, name) })
}

// MonitorsProcess reports whether process.jsonl is written: a recorder of memory accesses runs.
func (t *Tap) MonitorsProcess() bool { return t.Records(Samples) || t.Records(Ledger) }
