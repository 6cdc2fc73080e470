package bench

import (
	"fmt"
	"math"
	"reflect"
	"strings"
)

// Row is one test with its settings and what was measured. The order of its fields is that of the columns; a nil
// pointer is absent. Up to StddevTS they are llama-bench's, with its names and meanings; lists and objects stand in
// json only.
type Row struct {
	BuildCommit   *string `json:"build_commit"`
	BuildNumber   *int    `json:"build_number"`
	CPU           string  `json:"cpu_info"`
	GPU           string  `json:"gpu_info"`
	Backends      string  `json:"backends"`
	ModelFile     string  `json:"model_filename"`
	ModelType     string  `json:"model_type"`
	ModelSize     uint64  `json:"model_size"`
	Parameters    uint64  `json:"model_n_params"`
	Batch         int     `json:"n_batch"`
	MicroBatch    int     `json:"n_ubatch"`
	Threads       int     `json:"n_threads"`
	CPUMask       string  `json:"cpu_mask"`
	CPUStrict     bool    `json:"cpu_strict"`
	Poll          int     `json:"poll"`
	TypeK         string  `json:"type_k"`
	TypeV         string  `json:"type_v"`
	GPULayers     int     `json:"n_gpu_layers"`
	CPUMoE        int     `json:"n_cpu_moe"`
	SplitMode     string  `json:"split_mode"`
	MainGPU       int     `json:"main_gpu"`
	NoKVOffload   bool    `json:"no_kv_offload"`
	FlashAttn     int     `json:"flash_attn"` // -1 auto, 0 off, 1 on
	Devices       string  `json:"devices"`
	TensorSplit   string  `json:"tensor_split"`
	TensorBuffers string  `json:"tensor_buft_overrides"`
	LoadMode      string  `json:"load_mode"`
	LazyMode      string  `json:"lazy_mode"`
	Embeddings    bool    `json:"embeddings"`
	NoOpOffload   int     `json:"no_op_offload"`
	NoHost        bool    `json:"no_host"`
	Repack        bool    `json:"repack"`
	FitTarget     int     `json:"fit_target"`
	FitMinContext int     `json:"fit_min_ctx"`
	Prompt        int     `json:"n_prompt"`
	Gen           int     `json:"n_gen"`
	Depth         int     `json:"n_depth"`
	TestTime      string  `json:"test_time"`
	AvgNS         int64   `json:"avg_ns"`
	StddevNS      int64   `json:"stddev_ns"`
	AvgTS         float64 `json:"avg_ts"`
	StddevTS      float64 `json:"stddev_ts"`

	PromptName *string `json:"prompt_name"` // of a prompt that is a text
	// decoded at a time, where there are several; prompt, generation and depth are each one's
	Sequences *int     `json:"n_seq"`
	Tap       *string  `json:"tap"`        // the tap configuration's name
	TapFlags  *string  `json:"tap_flags"`  // what it records, as flags
	MedianTS  *float64 `json:"median_ts"`  // tokens/s, median of the repetitions
	LowTS     *float64 `json:"low_ts"`     // its 95 % interval
	HighTS    *float64 `json:"high_ts"`    //
	FirstNS   *int64   `json:"ttft_ns"`    // until what follows the prompt is known, median
	TokenP50  *int64   `json:"itl_p50_ns"` // between two generated tokens, of all repetitions
	TokenP90  *int64   `json:"itl_p90_ns"` //
	TokenP99  *int64   `json:"itl_p99_ns"` //
	// of tensors, in all visits, with warm-up and depth as far as the tap records them
	Captured *uint64 `json:"captured_bytes"`
	Stored   *uint64 `json:"stored_bytes"`    // the same as written
	Recorded *int64  `json:"recorded_tokens"` // token rows that these belong to
	OwnNS    *int64  `json:"tap_own_ns"`      // the tap's own time on the model's threads
	WaitNS   *int64  `json:"tap_wait_ns"`     // the model waiting for the recording
	GraphNS  *int64  `json:"graph_ns"`        // time in graphs meanwhile
	Lost     *uint64 `json:"lost_packets"`    // tensors that were not recorded

	SamplesNS      []int64   `json:"samples_ns"`
	SamplesTS      []float64 `json:"samples_ts"`
	SamplesFirstNS []int64   `json:"samples_ttft_ns"` // per repetition
	SamplesTokenNS []int64   `json:"samples_itl_ns"`  // per repetition, the median
	Rounds         []int     `json:"samples_round"`   // in which each repetition was run
	Environment    any       `json:"environment"`
}

// llamaColumns is how many of the columns are llama-bench's.
const llamaColumns = 42

// NewRow returns a row of a process that changes none of the settings that llama-bench has and we do not: they are
// llama.cpp's defaults.
func NewRow() Row {
	return Row{
		CPUMask: "0x0", Poll: 50, SplitMode: "layer", Devices: "auto", TensorSplit: "0.00", TensorBuffers: "none",
		LoadMode: "auto", LazyMode: "auto", Repack: true,
	}
}

// Test is the test as llama-bench names it, such as pp512, tg128 @ d1024 or pp512+tg128.
func (r *Row) Test() string {
	var name string
	switch {
	case r.Gen == 0:
		name = fmt.Sprintf("pp%d", r.Prompt)
	case r.Prompt == 0:
		name = fmt.Sprintf("tg%d", r.Gen)
	default:
		name = fmt.Sprintf("pp%d+tg%d", r.Prompt, r.Gen)
	}
	if r.Depth > 0 {
		name += fmt.Sprintf(" @ d%d", r.Depth)
	}
	return name
}

// sequences is how many were decoded at a time.
func (r *Row) sequences() int {
	if r.Sequences == nil {
		return 1
	}
	return *r.Sequences
}

// Settings are the row's settings, each with its column's name: what two rows must share to be the same test with
// the same machine. Recordings are identified by their flags, because names are free.
func (r *Row) Settings() []string {
	first, last := "n_batch", "fit_min_ctx"
	var all []string
	within := false
	for _, c := range columns {
		within = within || c.name == first
		if within || c.name == "n_seq" || c.name == "tap_flags" {
			all = append(all, strings.TrimSpace(c.name+" "+c.text(r)))
		}
		within = within && c.name != last
	}
	return all
}

// Summarise fills the figures of llama-bench from the samples: means and standard deviations.
func (r *Row) Summarise() {
	r.SamplesTS = make([]float64, len(r.SamplesNS))
	times := make([]float64, len(r.SamplesNS))
	for i, ns := range r.SamplesNS {
		times[i] = float64(ns)
		r.SamplesTS[i] = 1e9 * float64(r.sequences()*(r.Prompt+r.Gen)) / float64(ns)
	}
	mean, deviation := meanAndDeviation(times)
	r.AvgNS, r.StddevNS = int64(mean), int64(deviation)
	r.AvgTS, r.StddevTS = meanAndDeviation(r.SamplesTS)
}

// meanAndDeviation is the mean and the sample standard deviation of values, 0 for fewer than two.
func meanAndDeviation(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	if len(values) < 2 {
		return mean, 0
	}
	var squares float64
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(squares / float64(len(values)-1))
}

// column is one field of a Row that every form has.
type column struct {
	name  string
	index int
	kind  reflect.Kind
}

// columns are those of every form; lists are those of json alone.
var columns, lists = rowFields()

func rowFields() (columns, lists []column) {
	rows := reflect.TypeFor[Row]()
	for i := range rows.NumField() {
		f := rows.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type.Kind()
		if kind == reflect.Pointer {
			kind = f.Type.Elem().Kind()
		}
		c := column{name: name, index: i, kind: kind}
		if kind == reflect.Slice || kind == reflect.Interface {
			lists = append(lists, c)
		} else {
			columns = append(columns, c)
		}
	}
	return columns, lists
}

// valueIn returns the column's value in a row; ok is false where it is absent.
func (c column) valueIn(r *Row) (v reflect.Value, ok bool) {
	v = reflect.ValueOf(r).Elem().Field(c.index)
	switch v.Kind() {
	case reflect.Pointer:
		return v.Elem(), !v.IsNil()
	case reflect.Slice, reflect.Interface:
		return v, !v.IsNil()
	}
	return v, true
}

// text returns the value as llama-bench writes it in csv and sql; "" where it is absent.
func (c column) text(r *Row) string {
	v, ok := c.valueIn(r)
	switch {
	case !ok:
		return ""
	case c.kind == reflect.Bool && v.Bool():
		return "1"
	case c.kind == reflect.Bool:
		return "0"
	case c.kind == reflect.Float64:
		return fmt.Sprintf("%f", v.Float())
	}
	return fmt.Sprint(v.Interface())
}
