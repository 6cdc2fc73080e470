package mrm

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Tag says how a figure came about.
type Tag string

// The tags.
const (
	Computed  Tag = "computed"  // exactly, from the file's header and the configuration
	Measured  Tag = "measured"  // in earlier runs, or on this machine
	Estimated Tag = "estimated" // from what is known, by the rule in From
	Unknown   Tag = "unknown"   // there is no figure; From says why
)

// Figure is a number with its origin.
type Figure struct {
	Value float64 `json:"value"` // bytes, or seconds
	Tag   Tag     `json:"tag"`
	From  string  `json:"from,omitempty"`
}

// MarshalJSON leaves the value out of a figure that is not known.
func (f Figure) MarshalJSON() ([]byte, error) {
	type known Figure // without this method
	if f.Tag != Unknown {
		return json.Marshal(known(f))
	}
	return json.Marshal(struct {
		Tag  Tag    `json:"tag"`
		From string `json:"from,omitempty"`
	}{f.Tag, f.From})
}

// text returns a figure for people.
func (f Figure) text(write func(float64) string) string {
	if f.Tag == Unknown {
		return "-"
	}
	return write(f.Value)
}

// sourced is a figure for people, with its origin.
func (f Figure) sourced(write func(float64) string) string {
	if f.Tag == Unknown {
		return "not known: " + f.From
	}
	return fmt.Sprintf("%s (%s: %s)", write(f.Value), f.Tag, f.From)
}

// Need is what a cell takes.
type Need struct {
	Weights Figure `json:"weights_bytes"`
	Cache   Figure `json:"kv_cache_bytes"`
	Compute Figure `json:"compute_buffer_bytes"`
	Process Figure `json:"process_bytes"` // both processes beside that
	Memory  Figure `json:"memory_bytes"`  // all of it
	Disk    Figure `json:"disk_bytes"`
	Time    Figure `json:"time_s"` // of both runs and the look at the machine before them
}

// What a run takes beside the model.
const (
	programBytes   = 96 << 20  // of the model's process: its code, libraries and heap
	collectorBytes = 256 << 20 // --tap-memory: the collector keeps below it
	startSeconds   = 0.6       // two processes begin and end
)

// Speeds are how fast a model ran, and how much it left on the disk.
type Speeds struct {
	Runs            int
	Prefill, Decode float64 // tokens per second, without the tap
	Ratio           float64 // time with the tap by that without
	Load            float64 // seconds that are neither prompt nor generation
	PerToken        float64 // bytes on the disk

	// Of a program that nothing else is known of: seconds of both runs of a cell, peak RSS, and bytes on the disk.
	Both, Peak, Bytes float64
}

// runs returns the number of runs that the speeds are from, in words.
func (s *Speeds) runs() string {
	if s.Runs == 1 {
		return "1 earlier run"
	}
	return fmt.Sprintf("%d earlier runs", s.Runs)
}

// Bandwidth is how fast this machine's memory is read; bytes per second, and where that is known from.
type Bandwidth struct {
	BytesPerSecond float64
	From           string
	Tag            Tag
}

// estimate computes what a cell takes.
type estimate struct {
	*Config
	cell   *Cell
	speeds *Speeds // of the model's earlier runs; nil: there are none
	memory Bandwidth
}

func (e estimate) need() (Need, error) {
	if e.Engine.isCommand() {
		return e.command(), nil
	}
	s := e.cell.Source
	cells := e.cell.context()
	cache, err := s.cacheBytes(cells, e.cell.KVType, int64(e.cell.Concurrency))
	if err != nil {
		return Need{}, err
	}
	rows := float64(min(e.Engine.NUBatch, cells)) // the largest graph has logits for each of its tokens
	n := Need{
		Weights: Figure{float64(s.File.TensorBytes()), Computed, "tensors of the file"},
		Cache:   Figure{float64(cache), Computed, fmt.Sprintf("%d cells", cells)},
		Compute: Figure{4 * rows * float64(s.Identity.Vocab+8*s.Identity.Width), Estimated,
			"a row of logits and eight of the width per token of a graph"},
		Process: Figure{programBytes + collectorBytes, Estimated, "most that --tap-memory allows, and the program"},
	}
	n.Memory = Figure{n.Weights.Value + n.Cache.Value + n.Compute.Value + n.Process.Value, Estimated, "their sum"}
	n.Time, n.Disk = e.time(float64(cache)), e.disk()
	return n, nil
}

// command is what a cell of a program takes: as much as its earlier runs took.
func (e estimate) command() Need {
	speeds := e.speeds
	none := Figure{Tag: Unknown, From: "nothing is known of the program before its first run"}
	n := Need{Weights: none, Cache: none, Compute: none, Process: none, Memory: none, Disk: none, Time: none}
	if e.cell.Source.Bytes > 0 {
		n.Weights = Figure{float64(e.cell.Source.Bytes), Computed, "files of the model"}
	}
	if speeds == nil {
		return n
	}
	earlier := func(what string, value float64) Figure {
		return Figure{value, Measured, what + " of " + speeds.runs()}
	}
	if speeds.Peak > 0 {
		n.Memory = earlier("peak RSS", speeds.Peak)
	}
	n.Disk, n.Time = earlier("bytes", speeds.Bytes), earlier("time", e.Telemetry.BaselineS+speeds.Both)
	return n
}

// tokens are those of a cell's requests together: of prompts, and generated.
func (cell *Cell) tokens() (prompt, generated int64) {
	length, _ := cell.Input.length()
	return length * int64(cell.Concurrency), int64(cell.MaxTokens) * int64(cell.Concurrency)
}

// time is how long a cell takes. Every token of an unknown model is taken for one that reads all its weights from
// memory, which is true of generation, and more than prompts take.
func (e estimate) time(cache float64) Figure {
	cell, speeds, memory := e.cell, e.speeds, e.memory
	prompt, generated := cell.tokens()
	once, ratio, tag, from := 0.0, 1.0, Measured, ""
	switch {
	case speeds != nil && speeds.Prefill > 0 && speeds.Decode > 0:
		once = float64(prompt)/speeds.Prefill + float64(generated)/speeds.Decode + speeds.Load
		ratio = max(speeds.Ratio, 1)
		from = "speeds of " + speeds.runs()
	case memory.BytesPerSecond > 0:
		perToken := (float64(cell.Source.tokenBytes()) + cache/2) / memory.BytesPerSecond
		steps := float64(prompt) + float64(generated)/float64(cell.Concurrency)
		once = perToken*steps + float64(cell.Source.Bytes)/memory.BytesPerSecond + startSeconds
		tag, from = Estimated, "weights and half of the cache per token at "+memory.From
	default:
		return Figure{Tag: Estimated, From: "nothing is known of this machine's memory"}
	}
	return Figure{e.Telemetry.BaselineS + once*(1+ratio), tag, from}
}

// bytesPerRow and operandsPerLayer are what estimates of the disk are made with: accesses of a layer per graph, and
// what each takes.
const (
	operandsPerLayer = 64
	operandsBeside   = 24
	bytesPerRow      = 1.0
	bytesPerTensor   = 120.0
	bytesPerBlock    = 24.0
)

// disk is what a run leaves.
func (e estimate) disk() Figure {
	c, cell, speeds := e.Config, e.cell, e.speeds
	prompt, generated := cell.tokens()
	if speeds != nil && speeds.PerToken > 0 {
		return Figure{speeds.PerToken * float64(prompt+generated), Measured, "bytes per token of " + speeds.runs()}
	}
	layers := float64(max(cell.Source.Identity.Layers, 1))
	tables := bytesPerTensor * (float64(len(cell.Source.File.Tensors)) + operandsPerLayer*layers)
	tables += bytesPerBlock * 2 * layers * float64(cell.context()/c.KV.BlockTokens+1)
	graphs := float64(generated)/float64(cell.Concurrency) + float64(prompt/c.Engine.NUBatch+1)
	if c.Collector.GraphTrace == "rows" {
		tables += graphs * (operandsPerLayer*layers + operandsBeside) * bytesPerRow
	}
	return Figure{tables + 64<<10, Estimated,
		fmt.Sprintf("%.0f graphs of about %.0f accesses, a byte each", graphs, operandsPerLayer*layers+operandsBeside)}
}

// middle is the median of some values; 0 of none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
