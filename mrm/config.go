package mrm

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultFile is the configuration that is taken where none is named. It is mrm-trace's.
const DefaultFile = "config/default_experiment.yaml"

// Config is an experiment, as its file describes it. The tags are all there is to say about a key: from them come
// the decoder's checks, the JSON schema, the annotated default and the table in docs/MRM.md.
//
// Where a list is wanted a single value is accepted. A relative path of a model or prompt starts at the file's
// folder, output.dir where the program runs.
type Config struct {
	Experiment Settings  `yaml:"experiment" doc:"which experiment this is"`
	Models     []Model   `yaml:"model" doc:"the models; one mapping, or a list of them"`
	Engine     Engine    `yaml:"engine" doc:"how a model is run"`
	Workload   Workload  `yaml:"workload" doc:"what it computes" required:"yes"`
	Collector  Collector `yaml:"collector" doc:"what is collected of its accesses to memory"`
	KV         KV        `yaml:"kv" doc:"how the KV cache is followed"`
	Analysis   Analysis  `yaml:"analysis" doc:"what metrics are computed with"`
	Telemetry  Telemetry `yaml:"telemetry" doc:"how the machine is monitored"`
	Output     Output    `yaml:"output" doc:"where results go"`

	file   string
	sha256 string
	places map[string]place // of keys, such as model[1].path
	notes  []string
	// isTrace: the file is one of mrm-trace.
	isTrace bool
	// failsUnknown: a sample of no region fails its cell, as mrm-trace's unknown_policy fail_run does.
	failsUnknown bool
}

// Settings are those of the experiment as a whole.
type Settings struct {
	Name        string `yaml:"name" doc:"its name; runs of one name belong together" default:"default" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" words:"letters, digits, dots, dashes and underscores, at most 64"`
	Seed        int64  `yaml:"seed" doc:"of sampling, counted up by workload.concurrency per repetition, and of the order of both runs of a cell" default:"1" min:"0" max:"4294900000"`
	Repetitions int64  `yaml:"repetitions" doc:"how often each combination is run" default:"3" min:"1" max:"10000"`
}

// Model is one of the models.
type Model struct {
	ID     string `yaml:"id" doc:"its name in results; without it, general.name and file type" pattern:"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}$" words:"letters, digits, dots, dashes and underscores, no dot at its beginning"`
	Path   string `yaml:"path" doc:"its GGUF file; without it, the embedded model" scalar:"yes"`
	SHA256 string `yaml:"sha256" doc:"SHA-256 of the file, checked before anything runs" pattern:"^[0-9a-f]{64}$" words:"64 hexadecimal digits, as sha256sum prints them"`
}

// Engine is how a model is run.
type Engine struct {
	Type      string   `yaml:"type" doc:"llama.cpp, as llamatap run runs it; or command, any program" default:"llama.cpp" enum:"llama.cpp|command"`
	Command   []string `yaml:"command" json:",omitempty" doc:"of the type command: the program and its arguments, with placeholders such as {prompt}, {n_ctx} and {model}" example:"[./program, --prompt, \"{prompt}\"]"`
	NCtx      []int64  `yaml:"n_ctx" doc:"lengths of the context in tokens, of all requests at a time together; 0: what the model was trained for" default:"0" min:"0" max:"16777216"`
	NBatch    int64    `yaml:"n_batch" doc:"most tokens per call" default:"2048" min:"1" max:"1048576"`
	NUBatch   int64    `yaml:"n_ubatch" doc:"most tokens per graph" default:"512" min:"1" max:"1048576"`
	Threads   int64    `yaml:"threads" doc:"threads that compute; 0: one per core" default:"0" min:"0" max:"4096"`
	GPULayers int64    `yaml:"gpu_layers" doc:"layers that devices hold; -1: as many as fit" default:"-1" min:"-1" max:"100000"`
	KVType    []string `yaml:"kv_type" doc:"types of the KV cache; two with a slash between them are those of K and of V" default:"f16" enum:"f32|f16|bf16|q8_0|q5_1|q5_0|q4_1|q4_0|iq4_nl" pair:"yes"`
}

// Workload is what a model computes.
type Workload struct {
	Prompts     []Prompt `yaml:"prompts" doc:"the prompts: texts, or mappings" required:"yes"`
	MaxTokens   []int64  `yaml:"max_tokens" doc:"tokens that each request generates; an end of text does not end it earlier" default:"64" min:"1" max:"16777216"`
	Concurrency []int64  `yaml:"concurrency" doc:"requests of the prompt that are decoded at a time, with seeds of their own" default:"1" min:"1" max:"256"`
}

// Prompt is one of the prompts: a text, a file with one, or a number of random tokens.
type Prompt struct {
	ID     string `yaml:"id" doc:"its name in results; without it p0, p1 and so on" pattern:"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" words:"letters, digits, dots, dashes and underscores, no dot at its beginning"`
	Text   string `yaml:"text" doc:"its text" scalar:"yes"`
	File   string `yaml:"file" doc:"a file with its text"`
	Length int64  `yaml:"length" doc:"in place of a text, so many random tokens" default:"0" min:"0" max:"16777216"`
}

// Collector is what is collected of accesses to memory.
type Collector struct {
	Primary    string `yaml:"primary" doc:"graph: the exact ledger of operations; perf: loads and stores that the processor samples; fault: page faults; page: pages that were written; none: regions and the cache alone" default:"graph" enum:"graph|perf|fault|page|none"`
	Fallback   string `yaml:"fallback" doc:"collector where this machine cannot sample with perf; the results name it. The ledger needs none" default:"none" enum:"fault|page|none"`
	Period     int64  `yaml:"period" doc:"loads and stores per sample of perf; 0: what is usual for the processor" default:"0" min:"0" max:"1000000000"`
	GraphTrace string `yaml:"graph_trace" doc:"the ledger next to the primary collector: a row per access, windows for long runs, or off" default:"rows" enum:"rows|windows|off"`
}

// KV is how the KV cache is followed.
type KV struct {
	BlockTokens int64 `yaml:"block_tokens" doc:"cells of a block; 1 follows each cell" default:"32" min:"1" max:"1048576"`
}

// Analysis is what metrics are computed with.
type Analysis struct {
	WindowsS   []float64  `yaml:"windows_s" doc:"lengths of the windows of working sets, in seconds" default:"0.001,0.1,1" min:"0.000001" max:"86400"`
	Thresholds Thresholds `yaml:"thresholds" doc:"bounds of the labels of suitability; the defaults are those of mrm-trace"`
}

// Thresholds are bounds of labels.
type Thresholds struct {
	HighWriteOnce    float64 `yaml:"high_write_once" doc:"least write-once ratio of high_mrm" default:"0.8" min:"0" max:"1"`
	HighRetentionS   float64 `yaml:"high_retention_s" doc:"least 99th percentile of its retention, in seconds" default:"10" min:"0" max:"1e9"`
	MediumWriteOnce  float64 `yaml:"medium_write_once" doc:"least write-once ratio of medium_mrm" default:"0.5" min:"0" max:"1"`
	MediumRetentionS float64 `yaml:"medium_retention_s" doc:"least median of its retention, in seconds" default:"1" min:"0" max:"1e9"`
}

// Telemetry is how the machine is monitored.
type Telemetry struct {
	BaselineS float64 `yaml:"baseline_s" doc:"how long the machine is monitored before each cell, in seconds" default:"2" min:"0.1" max:"3600"`
}

// Output is where results go.
type Output struct {
	Dir         string `yaml:"dir" doc:"folder of the results" default:"results"`
	Compression string `yaml:"compression" doc:"of tables" default:"zstd" enum:"zstd"`
}

// Notes are sentences on what of a file of mrm-trace has no counterpart, or another meaning here; none for a file
// of our own.
func (c *Config) Notes() []string { return c.notes }

// problems collects what is wrong with the file.
func (c *Config) problems() *Problems { return &Problems{File: c.file, places: c.places} }

// resolvePath returns a path that the file names, from where the program runs.
func (c *Config) resolvePath(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.file), path)
}

// Collects reports as [*Problems] that the primary collector, and its fallback, are among those that are missing.
func (c *Config) Collects(missing map[string]error) error {
	k := c.Collector
	if missing[k.Primary] == nil || k.Fallback != "none" && missing[k.Fallback] == nil {
		return nil
	}
	var remedies, why []string
	fallback, graph := "", "graph"
	if c.isTrace {
		fallback, graph = "memray", "memray" // which page faults and the ledger stand for
	}
	for _, name := range []string{"fault", "page"} {
		if k.Primary == "perf" && missing[name] == nil {
			remedies = append(remedies, "add collector.fallback: "+cmp.Or(fallback, name))
			break
		}
	}
	if !c.Engine.isCommand() {
		remedies = append(remedies, "write collector.primary: "+graph)
	}
	remedies = append(remedies, "run it on another machine ('llamatap mrm plan --emit slurm')")
	for _, name := range []string{k.Primary, k.Fallback} {
		if err := missing[name]; err != nil {
			why = append(why, fmt.Sprintf("%s: %v", name, err))
		}
	}
	problems := c.problems()
	problems.add("this machine cannot collect "+strings.Join(slices.Compact(why), "; and "), list(remedies),
		"collector.primary", "collector", "engine.type")
	return problems
}
