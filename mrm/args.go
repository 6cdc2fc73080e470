package mrm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/store/rundir"
)

// request is a line of a prompt file (docs/PROMPTS.md).
type request struct {
	ID      string `json:"id"`
	Prompt  any    `json:"prompt"`
	Predict int    `json:"n_predict"`
	Seed    uint32 `json:"seed"`
	NoEnd   bool   `json:"ignore_eos"`
}

// requests are the prompt file of a cell: the prompt once per request at a time, each with a seed of its own.
func (cell *Cell) requests() []byte {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	for i := range cell.Concurrency {
		r := request{strconv.Itoa(i), cell.Input.Text, cell.MaxTokens, cell.Seed + uint32(i), true}
		if cell.Input.Tokens != nil {
			r.Prompt = cell.Input.Tokens
		}
		if err := lines.Encode(r); err != nil {
			panic(err) // of texts and numbers
		}
	}
	return b.Bytes()
}

// modelArgs are the arguments of llamatap run that make the model compute the cell.
func modelArgs(c *Config, cell *Cell, prompts, results string) []string {
	k, v := kvTypes(cell.KVType)
	args := []string{"run", "--prompts", prompts, "--results", results, "-np", strconv.Itoa(cell.Concurrency),
		"--stop-on-error",
		"-c", strconv.Itoa(cell.NCtx), "-b", fmt.Sprint(c.Engine.NBatch), "-ub", fmt.Sprint(c.Engine.NUBatch), "-ctk",
		k, "-ctv", v, "--seed", fmt.Sprint(cell.Seed)}
	if cell.Source.Path != "" {
		args = append(args, "-m", cell.Source.Path)
	}
	if c.Engine.Threads > 0 {
		args = append(args, "-t", fmt.Sprint(c.Engine.Threads))
	}
	if c.Engine.GPULayers >= 0 {
		args = append(args, "-ngl", fmt.Sprint(c.Engine.GPULayers))
	}
	return args
}

// tapArgs are those that record it below out. A recording that fails ends the model: half a cell is of no use.
func tapArgs(c *Config, out string) []string {
	args := []string{"--tap-regions", "--tap-kv", "--tap-kv-block", fmt.Sprint(c.KV.BlockTokens), "--tap-on-failure",
		"stop", "--tap-out", out}
	k := c.Collector
	if k.GraphTrace != "off" {
		args = append(args, "--tap-ledger", k.GraphTrace)
	}
	if flag := sampleFlags[k.Primary]; flag != "" {
		if other := sampleFlags[k.Fallback]; other != "" {
			flag += ":" + other
		}
		args = append(args, "--tap-samples", flag)
	}
	if k.Period > 0 {
		args = append(args, "--tap-samples-period", fmt.Sprint(k.Period))
	}
	return args
}

// sampleFlags are the names that --tap-samples has for collectors.
var sampleFlags = map[string]string{"perf": sample.Perf, "fault": sample.Faults, "page": sample.Pages}

// MissingCollectors are the sampling collectors (perf, fault, page) that cannot run on this machine, each with the
// reason. It opens and closes each.
func MissingCollectors() map[string]error {
	missing := map[string]error{}
	for name, flag := range sampleFlags {
		if _, err := sample.Try(flag); err != nil {
			missing[name] = err
		}
	}
	return missing
}

// clean is an environment without what would change a run, or record the one that is not to be.
func clean(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		for _, prefix := range []string{"LLAMATAP_", "LLAMA_ARG_", "LLAMA_RESOURCE_"} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	})
}

// collected is what was to be collected, and what was, by the metadata of the recording.
func (k *Collector) collected(m rundir.Metadata) memory.Collector {
	v := memory.Collector{Asked: []string{}, Used: []string{}, GraphTrace: k.GraphTrace, Period: k.Period}
	if k.GraphTrace != "off" {
		v.Asked, v.Used = append(v.Asked, "graph"), append(v.Used, "graph")
	}
	if sampleFlags[k.Primary] == "" {
		return v
	}
	v.Asked = append(v.Asked, k.Primary)
	var samples struct {
		Collectors []struct {
			Collector string   `json:"collector"`
			Notes     []string `json:"notes"` // such as why it stands in for another one
		} `json:"collectors"`
		Missing []string `json:"missing"` // that could not run, and why
		Lossy   bool     `json:"lossy"`
	}
	if err := json.Unmarshal(m.Extra["memory_samples"], &samples); err != nil {
		v.Why = "the recorder does not report it"
		return v
	}
	why := samples.Missing
	for _, used := range samples.Collectors {
		if used.Collector != sampleFlags[k.Primary] {
			why = append(why, used.Notes...)
		}
		for name, flag := range sampleFlags {
			if flag == used.Collector {
				v.Used = append(v.Used, name)
			}
		}
	}
	if samples.Lossy { // of a program: a model's run is none then
		why = append(why, "some samples are missing, see memory_samples")
	}
	v.Why = strings.Join(why, "; ")
	return v
}
