package memory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// Metadata is metadata.json of a run of an experiment: that of the recorded run, and what the experiment adds.
type Metadata struct {
	SchemaVersion string `json:"llamatap_schema_version"`
	rundir.Metadata
	Experiment Experiment `json:"experiment"`
	Cell       Cell       `json:"cell"`
	Engine     Engine     `json:"engine,omitzero"`
	Collector  Collector  `json:"collector"`
	Observer   Observer   `json:"observer"`
	Validity   Validity   `json:"validity"`
}

// Experiment is the experiment that a run belongs to.
type Experiment struct {
	Name         string `json:"name"`
	Seed         uint32 `json:"seed"`
	Repetitions  int    `json:"repetitions"`
	ConfigSHA256 string `json:"config_sha256"`
}

// Cell is the place of a run in the matrix. The value of a key that is not passed to a program is absent.
type Cell struct {
	// Key is of everything that makes the cell what it is but its repetition: 16 hexadecimal digits.
	Key          string `json:"key"`
	Index        int    `json:"index"`
	ModelID      string `json:"model_id"`
	Prompt       string `json:"prompt"` // its id
	PromptSHA256 string `json:"prompt_sha256"`
	NCtx         int    `json:"n_ctx"` // 0: what the model was trained for
	KVType       string `json:"kv_type,omitempty"`
	Repetition   int    `json:"repetition"` // from 0
	Seed         uint32 `json:"seed"`
	MaxTokens    int    `json:"max_tokens,omitempty"`
	Concurrency  int    `json:"concurrency,omitempty"`
}

// Name is the cell in one word, for journals and lines on a screen.
func (c *Cell) Name() string {
	name := c.ModelID + "/" + c.Prompt
	if c.NCtx > 0 || c.KVType != "" {
		name += fmt.Sprintf("/c%d", c.NCtx)
	}
	if c.KVType != "" {
		name += "/" + strings.ReplaceAll(c.KVType, "/", "+")
	}
	return fmt.Sprintf("%s/r%d", name, c.Repetition)
}

// Engine is what computed.
type Engine struct {
	Type    string   `json:"type"`              // llama.cpp, or command: any program
	Command []string `json:"command,omitempty"` // its words as the configuration has them, with placeholders
	Program string   `json:"program,omitempty"` // the program's path
}

// Collector is what was to be collected, and what was.
type Collector struct {
	Asked      []string `json:"asked"`
	Used       []string `json:"used"`
	GraphTrace string   `json:"graph_trace"`
	Period     int64    `json:"period,omitempty"` // events per sample; 0: the collector's own
	Why        string   `json:"why,omitempty"`    // of what was used in place of what was asked for
}

// Observer is what observing a run cost. Everything is measured; what could not be is nil.
type Observer struct {
	CPUPct *float64 `json:"cpu_pct,omitempty"` // of one processor, on average over the recorded run
	// CPUPeakPct is the largest share of one processor in any second of the recorded run; the tap's part, which is
	// known of the whole run alone, counts by its average.
	CPUPeakPct  *float64 `json:"cpu_peak_pct,omitempty"`
	CPUNS       CPU      `json:"cpu_ns"`
	WallNS      int64    `json:"wall_ns"`
	MemoryBytes int64    `json:"memory_bytes,omitempty"`
	// CollectorRSSBytes is the collector's peak RSS, which contains the program's code: the model's process has the
	// same pages.
	CollectorRSSBytes int64    `json:"collector_rss_bytes,omitempty"`
	TargetRSSBytes    int64    `json:"target_rss_bytes,omitempty"`
	MemoryPct         *float64 `json:"memory_pct,omitempty"`
	Baseline          Pass     `json:"baseline"`
	Tapped            Pass     `json:"tapped"`
	PrefillRatio      *float64 `json:"prefill_ratio,omitempty"`
	DecodeRatio       *float64 `json:"decode_ratio,omitempty"`
	// WallRatio and SameOutput are of a program, of which no tokens are known: time without the tap by that with
	// it, and whether it wrote the same to its standard output.
	WallRatio      *float64 `json:"wall_ratio,omitempty"`
	SameOutput     *bool    `json:"same_output,omitempty"`
	SameTokens     *bool    `json:"same_tokens,omitempty"`
	ThrottleEvents *int64   `json:"throttle_events,omitempty"`
	Throttle       Throttle `json:"throttle"`
	BaselineCPUPct *float64 `json:"baseline_cpu_pct,omitempty"` // of all processors
	BaselineS      float64  `json:"baseline_s"`
	OthersCPUPct   *float64 `json:"others_cpu_pct,omitempty"` // of all processors
}

// CPU is processor time in nanoseconds, by who used it.
type CPU struct {
	Collector int64 `json:"collector"`
	Tap       int64 `json:"tap"`
	MRM       int64 `json:"mrm"`
}

// Sum is all of it.
func (c CPU) Sum() int64 { return c.Collector + c.Tap + c.MRM }

// Pass is one of the two runs of a cell: without the tap, or with it. Times are the model's own, as its results
// report them; a program reports none.
type Pass struct {
	PromptTokens    int64 `json:"prompt_tokens,omitempty"`
	PromptNS        int64 `json:"prompt_ns,omitempty"`
	GeneratedTokens int64 `json:"generated_tokens,omitempty"`
	GenerationNS    int64 `json:"generation_ns,omitempty"`
	WallNS          int64 `json:"wall_ns"` // from its start to its end, loading included
	PeakRSSBytes    int64 `json:"peak_rss_bytes,omitempty"`
	First           bool  `json:"first,omitempty"`
}

// Rates are tokens per second of prompt and of generation, 0 where there is none.
func (p *Pass) Rates() (prefill, decode float64) {
	return rate(p.PromptTokens, p.PromptNS), rate(p.GeneratedTokens, p.GenerationNS)
}

func rate(n, ns int64) float64 {
	if ns <= 0 {
		return 0
	}
	return float64(n) / (float64(ns) / 1e9)
}

// Throttle counts what slowed the machine down. A source that it does not have is nil.
type Throttle struct {
	Cgroup  *int64 `json:"cgroup,omitempty"`  // periods in which the quota of processor time was used up
	Thermal *int64 `json:"thermal,omitempty"` // events of cores and packages
	// times that a busy processor ran 20 % below its base frequency for a second or more
	Frequency *int64 `json:"frequency,omitempty"`
}

// Events are all of them; nil where the machine has no source.
func (t *Throttle) Events() *int64 {
	var sum *int64
	for _, n := range []*int64{t.Cgroup, t.Thermal, t.Frequency} {
		if n == nil {
			continue
		}
		if sum == nil {
			sum = new(int64)
		}
		*sum += *n
	}
	return sum
}

// The errors of reading.
var (
	ErrNoExperiment = errors.New("no run of an experiment")
	ErrVersion      = errors.New("schema of another major version")
)

// ReadMetadata reads metadata.json of a run of an experiment. A directory without manifest or without the keys of an
// experiment is ErrNoExperiment; one of another major version of the schema is ErrVersion.
func ReadMetadata(dir string) (Metadata, error) {
	var m Metadata
	if _, err := os.Stat(filepath.Join(dir, rundir.ManifestName)); err != nil {
		return m, fmt.Errorf("%s has no manifest: %w; only sealed runs are read", dir, ErrNoExperiment)
	}
	path := filepath.Join(dir, rundir.MetadataName)
	text, err := rundir.ReadFile(path, rundir.MaxDocument)
	if err != nil {
		return m, fmt.Errorf("read metadata: %w", err)
	}
	var version struct {
		Schema string `json:"llamatap_schema_version"`
		Before string `json:"mrm_trace_schema_version"` // as llamatap 1.0 called it
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return m, fmt.Errorf("%s: %w; it is damaged: llamatap verify %s", path, err, dir)
	}
	switch schema := cmp.Or(version.Schema, version.Before); {
	case schema == "":
		return m, fmt.Errorf("%s: %w; 'llamatap mrm run' makes some", path, ErrNoExperiment)
	case !table.ReadableVersion(schema):
		return m, fmt.Errorf("%s: %w: %s %q, this program reads %s; use the llamatap that wrote it", path, ErrVersion,
			table.VersionKey, schema, table.Version)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s: %w; it is damaged: llamatap verify %s", path, err, dir)
	}
	return m, nil
}
