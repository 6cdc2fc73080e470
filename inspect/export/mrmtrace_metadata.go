package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// mrmMetadata is mrm-trace's metadata.json, as far as a run of llamatap has it. What it does not have is null or
// absent.
type mrmMetadata struct {
	Version string `json:"mrm_trace_schema_version"`
	RunID   string `json:"run_id"`
	Machine string `json:"machine_id"`
	Model   struct {
		ID     string `json:"id"`
		Engine string `json:"engine"`
		Path   string `json:"path,omitempty"`
		Quant  string `json:"quantisation,omitempty"`
	} `json:"model"`
	Collector struct {
		Type string `json:"type"`
		// InferredPhases is true if nobody set the markers that the column phase follows from.
		InferredPhases bool `json:"llamatap_phases_inferred,omitempty"`
	} `json:"collector"`
	Generation struct {
		Context uint32   `json:"context_length,omitempty"`
		Batch   uint32   `json:"batch_size,omitempty"` // requests at a time, not tokens
		Most    int      `json:"output_tokens,omitempty"`
		Rep     *int     `json:"rep_index,omitempty"`
		Tokens  *int64   `json:"total_output_tokens,omitempty"`
		Speed   *float64 `json:"avg_tokens_per_second,omitempty"`
	} `json:"generation"`
	Hardware struct {
		CPU    string `json:"cpu_model,omitempty"`
		Cores  int    `json:"cpu_cores,omitempty"`
		Memory int64  `json:"ram_bytes,omitempty"`
	} `json:"hardware"`
	Software struct {
		OS       string `json:"os,omitempty"`
		Kernel   string `json:"kernel,omitempty"`
		Llamatap string `json:"llamatap_version,omitempty"`
	} `json:"software"`
	Timing struct {
		WallS float64 `json:"total_wall_duration_s,omitempty"`
	} `json:"timing"`
	Thermal struct {
		Validity memory.Class `json:"run_validity,omitempty"`
		Throttle *int64       `json:"throttle_events,omitempty"`
	} `json:"thermal"`
}

var notInSlugs = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// slug is a name as a folder may have it.
func slug(name string) string {
	if name = strings.Trim(notInSlugs.ReplaceAllString(name, "-"), "-."); name == "" {
		return "unknown"
	}
	return name
}

// describe fills the metadata in.
func (e *mrmTrace) describe() (m mrmMetadata) {
	from := &e.meta
	m.Version, m.RunID, m.Machine = schemaVersion, from.RunID, strings.ToLower(slug(from.Host.CPU))
	m.Model.ID, m.Model.Engine, m.Model.Path, m.Model.Quant = from.Model.ID, "llamacpp", from.Model.Path,
		from.Model.FileType
	m.Collector.Type = "llamatap"
	var marks struct {
		Inferred bool `json:"inferred"`
	}
	m.Collector.InferredPhases = json.Unmarshal(from.Extra["markers"], &marks) == nil && marks.Inferred
	if len(from.Contexts) > 0 {
		m.Generation.Context, m.Generation.Batch = from.Contexts[0].NCtx, from.Contexts[0].NSeqMax
	}
	if t := from.Tokens; t != nil {
		m.Generation.Tokens = &t.Generated
		if p := from.Phases["decode"]; p.NS > 0 {
			m.Generation.Speed = new(float64(t.Generated) / (float64(p.NS) / 1e9))
		}
	}
	m.Hardware.CPU, m.Hardware.Cores, m.Hardware.Memory = from.Host.CPU, from.Host.Cores, from.Host.MemoryBytes
	m.Software.OS, m.Software.Kernel, m.Software.Llamatap = from.Host.OS, from.Host.Kernel, from.Llamatap
	if !from.Ended.IsZero() {
		m.Timing.WallS = from.Ended.Sub(from.Created).Seconds()
	}
	if run, err := memory.ReadMetadata(e.dir); err == nil { // a run of an experiment
		m.Generation.Most, m.Generation.Rep = run.Cell.MaxTokens, &run.Cell.Repetition
		m.Thermal.Validity, m.Thermal.Throttle = run.Validity.Class, run.Observer.ThrottleEvents
	}
	return m
}

// mrmListColumns are those of manifest.csv.
var mrmListColumns = []string{
	"run_id", "machine_id", "model_id", "collector", "context_length", "batch_size", "max_tokens_per_prompt", "rep",
	"run_validity", "peak_temp_c", "throttle_events",
	"total_wall_s", "avg_tok_per_s", "total_output_tokens", "retention_p99_s", "write_once_ratio_mean",
	"working_set_pages_total", "cpu_model",
	"cpu_freq_scaling_max_mhz", "os", "kernel", "has_prompt_outputs", "recorded_at",
}

// maxList bounds a manifest.csv that is there already.
const maxList = 64 << 20

// list puts the run into manifest.csv, in the place of an earlier line of it.
func (e *mrmTrace) list(path string) error {
	rows := [][]string{mrmListColumns}
	text, err := rundir.ReadFile(path, maxList)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		in := csv.NewReader(bytes.NewReader(text))
		if rows, err = in.ReadAll(); err != nil || len(rows) == 0 ||
			strings.Join(rows[0], ",") != strings.Join(mrmListColumns, ",") {
			return errors.Join(err,
				errors.New(path+" has other columns than mrm-trace 0.1.23 writes: choose another folder with -o"))
		}
	}
	kept := rows[:1:1]
	for _, row := range rows[1:] {
		if row[0] != e.meta.RunID {
			kept = append(kept, row)
		}
	}
	return rundir.WriteFile(path, 0o600, func(out io.Writer) error {
		return csv.NewWriter(out).WriteAll(append(kept, e.line()))
	})
}

// line returns the run's line of manifest.csv.
func (e *mrmTrace) line() []string {
	m := &e.about
	types := e.trace.observed.Types()
	var p99, pages, once, written float64
	for i := range types {
		p99 += types[i].RetentionP99 / float64(len(types))
		pages += float64(types[i].Pages)
	}
	for _, r := range e.trace.observed.Regions() {
		if r.Writes > 0 {
			once, written = once+r.WriteOnce(), written+1
		}
	}
	rounded := func(v float64) string { return table.Cell(math.Round(v*1e4) / 1e4) }
	some := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	speed := ""
	if v := m.Generation.Speed; v != nil {
		speed = rounded(*v)
	}
	_, err := os.Stat(filepath.Join(e.dir, rundir.TokensName))
	hasTexts := "False"
	if err == nil {
		hasTexts = "True"
	}
	return []string{
		m.RunID, m.Machine, m.Model.ID, m.Collector.Type, some(int64(m.Generation.Context)),
		some(int64(m.Generation.Batch)), some(int64(m.Generation.Most)), given(m.Generation.Rep),
		string(m.Thermal.Validity), "", given(m.Thermal.Throttle),
		rounded(m.Timing.WallS), speed, given(m.Generation.Tokens), rounded(p99), rounded(once / written),
		some(int64(pages)), m.Hardware.CPU,
		"", m.Software.OS, m.Software.Kernel, hasTexts, e.meta.Created.UTC().Format(time.RFC3339),
	}
}

// given is a number that may be absent.
func given[T int | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}
