//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// instrumented runs examples/instrument and returns the file of events that it wrote, and its lines.
func instrumented(t *testing.T, env ...string) (path string, lines [][]byte) {
	t.Helper()
	program, backends := testenv.Instrumented(t, filepath.Join(testenv.Root(t), "examples", "instrument",
		"instrument.cpp"))
	path = filepath.Join(t.TempDir(), "resource.jsonl")
	cmd := exec.Command(program, path, backends)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil || !bytes.HasSuffix(b, []byte("\n")) {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	return path, bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

// setByProgram are keys that the tap's events do not have: a program sets them, not the tap.
var setByProgram = []string{
	"recorder", "enabled", "looking_ns", "compute_operations", "memory_operations", "ops_without_flops", "name",
	"input_tensors_left_out",
	"cache_bytes", "cache_size_mb", "unmatched_ends", "left_open", "untracked_allocations", "unmatched_deallocations",
	"arithmetic_intensity",
}

// keysOf are the keys of an event's struct.
func keysOf(kind reflect.Type, keys map[string]bool) map[string]bool {
	for i := range kind.NumField() {
		f := kind.Field(i)
		if f.Anonymous {
			keysOf(f.Type, keys)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys[name] = true
	}
	return keys
}

// checkLine reads a line into the struct of its kind, and demands that each key is one that kind has.
func checkLine(t *testing.T, line []byte) (event any, keys map[string]any) {
	t.Helper()
	event, err := resource.Decode(line)
	if err == nil {
		err = json.Unmarshal(line, &keys)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if unix, _ := keys["unix_ns"].(float64); keys["timestamp"] == nil || unix < 1.7e18 || keys["source"] == nil ||
		keys["session_id"] == nil {
		t.Errorf("%s", line)
	}
	known := keysOf(reflect.TypeOf(event).Elem(), map[string]bool{})
	for key := range keys {
		if !known[key] && !slices.Contains(setByProgram, key) {
			t.Errorf("%v has a key %q that docs/EVENTS.md does not have", keys["event"], key)
		}
	}
	if sources, ok := keys["sources"].(map[string]any); ok {
		for key := range sources {
			if _, ok := keys[key]; !ok {
				t.Errorf("sources names %q, which the event does not have: %s", key, line)
			}
		}
	}
	return event, keys
}

// TestInstrument compiles and runs the example, whose events must be what it computed.
func TestInstrument(t *testing.T) {
	_, lines := instrumented(t)
	counts := map[string]int{}
	var layerNS, componentNS int64
	shapes := map[string][]int64{}
	for _, line := range lines {
		event, keys := checkLine(t, line)
		counts[keys["event"].(string)]++
		switch e := event.(type) {
		case *resource.Allocation:
			shapes[keys["name"].(string)] = e.TensorShape
			if e.MemoryAddress == "" || e.EstimatedBandwidthGBPS != nil || e.AllocationSizeMB == nil ||
				*e.AllocationSizeMB <= 0 || *e.CompressionRatio < 1 {
				t.Errorf("%s", line)
			}
		case *resource.Compute:
			shapes[e.Name] = e.OutputShape
			checkCompute(t, line, e, shapes)
		case *resource.LayerEnd:
			layerNS += e.DurationNS
			if e.ComputeOperations != 9 || *e.LayerComputeGFLOP <= 0 {
				t.Errorf("%s", line)
			}
		case *resource.ComponentEnd:
			componentNS += e.DurationNS
		case *resource.Summary:
			if want := uint64(14*8192 - 6*8192 + 6*16384 + 3*1792); e.PeakLiveBytes != want || e.Lost != nil ||
				e.ComponentFlows != 4 {
				t.Errorf("want a peak of %d: %s", want, line)
			}
			if e.SessionID != `instrument "example"` {
				t.Errorf("session %q", e.SessionID)
			}
		}
	}
	want := map[string]int{
		"resource_session_start": 1, "resource_tracking_begin": 1, "memory_allocation": 17, "layer_begin": 2,
		"component_begin":   4,
		"compute_execution": 18, "kv_cache_operation": 2, "component_end": 4, "component_handoff": 4,
		"mlp_operation": 8, "layer_end": 2,
		"memory_deallocation": 2, "resource_session_summary": 1, "resource_session_end": 1,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("events %v, want %v", counts, want)
	}
	if componentNS <= 0 || componentNS > layerNS {
		t.Errorf("components took %d ns, the layers they are in %d", componentNS, layerNS)
	}
}

// checkCompute compares the FLOPs of a line with resource's formulas; shapes are those of the tensors that were
// reported before.
func checkCompute(t *testing.T, line []byte, e *resource.Compute, shapes map[string][]int64) {
	t.Helper()
	names := map[string]string{"mul_mat": "MUL_MAT", "softmax": "SOFT_MAX", "rms_norm": "RMS_NORM", "swiglu": "SWIGLU",
		"add": "ADD"}
	tensor := func(shape []int64) (r resource.Tensor) {
		r.NE = [4]int64{1, 1, 1, 1}
		copy(r.NE[:], shape)
		return r
	}
	op := resource.Op{Name: names[e.Operation], Out: tensor(e.OutputShape)}
	op.Src[0] = tensor(shapes[e.InputTensors[0]])
	flops, ok := op.FLOPs()
	if !ok || e.FLOPs == nil || *e.FLOPs != flops || *e.GFLOP*1e9 < float64(flops)*0.999 {
		t.Errorf("want %d FLOPs (%v): %s", flops, ok, line)
	}
	if e.BytesRead == nil || *e.BytesWritten != 4*op.Out.Elements() || e.DurationNS != nil || e.SMUtilization != nil {
		t.Errorf("%s", line)
	}
}

// TestInstrumentEnvironment: what the environment says holds, and the levels record what resource's table says.
func TestInstrumentEnvironment(t *testing.T) {
	testenv.Slow(t)
	program, backends := testenv.Instrumented(t, filepath.Join(testenv.Root(t), "examples", "instrument",
		"instrument.cpp"))
	for _, level := range []resource.Level{resource.Minimal, resource.Detailed} {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		cmd := exec.Command(program, filepath.Join(t.TempDir(), "not", "there"), backends)
		cmd.Env = append(os.Environ(), "LLAMA_RESOURCE_LOG_PATH="+path, "LLAMA_RESOURCE_LOG_LEVEL="+level.String())
		out, err := cmd.CombinedOutput()
		b, _ := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, line := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
			_, keys := checkLine(t, line)
			if kind, _ := resource.ParseKind(keys["event"].(string)); !level.Includes(kind) {
				t.Errorf("%v records %v", level, kind)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "r.jsonl")
	cmd := exec.Command(program, path, backends)
	cmd.Env = append(os.Environ(), "LLAMA_RESOURCE_DISABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("instrumentation was disabled, and there is a file")
	}
	cmd = exec.Command(program, "/dev/full", backends)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Count(out, []byte("No space left on device")) != 1 {
		t.Errorf("want it to end well, and to say once that there is no room: %v\n%s", err, out)
	}
}

// TestInstrumentRecipes: LRI's recipes for jq run on the file.
func TestInstrumentRecipes(t *testing.T) {
	testenv.Slow(t)
	jq := testenv.NeedJQ(t)
	path, _ := instrumented(t)
	for recipe, want := range map[string]int{
		`select(.event=="memory_allocation") | {layer_id, allocation_size_mb, memory_type}`:      17,
		`select(.event=="compute_execution") | {layer_id, compute_intensity_gflops}`:             18,
		`select(.event=="mlp_operation") | {layer_id, mlp_operation, activation_memory_peak_mb}`: 8,
		`select(.event=="component_end" and .layer_id == 1) | {component_type, duration_us}`:     2,
		`select(.source=="estimated" or .estimated_duration_us or .sm_utilization_percent)`:      0,
	} {
		out, err := exec.Command(jq, "-c", recipe, path).Output()
		if n := bytes.Count(out, []byte("\n")); err != nil || n != want {
			t.Errorf("%s: %d lines, want %d: %v", recipe, n, want, err)
		}
	}
}

// TestInstrumentFormulas compares the library's formulas with resource's, on random shapes.
func TestInstrumentFormulas(t *testing.T) {
	testenv.Slow(t)
	program := testenv.InstrumentAsk(t)
	random := rand.New(rand.NewPCG(1, 2))
	var in strings.Builder
	var ops []resource.Op
	names := slices.Sorted(maps.Keys(resource.Formulas()))
	for range 20 {
		for _, name := range names {
			op := randomOp(random, name)
			ops = append(ops, op)
			fmt.Fprintln(&in, name, spaced(op.Out.NE[:]), spaced(op.Params[:]))
			for _, src := range op.Src[:5] {
				fmt.Fprintln(&in, spaced(src.NE[:]))
			}
		}
	}
	cmd := exec.Command(program, "flops")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	got := strings.Fields(string(out))
	if err != nil || len(got) != len(ops) {
		t.Fatalf("%d answers to %d operations: %v", len(got), len(ops), err)
	}
	known := map[string]bool{}
	for i, op := range ops {
		if got[i] == "-" {
			continue
		}
		known[op.Name] = true
		if want, _ := op.FLOPs(); got[i] != strconv.FormatInt(want, 10) {
			t.Errorf("%+v: %s FLOPs, want %d", op, got[i], want)
		}
	}
	if len(known) < 50 || !known["MUL_MAT_ID"] || !known["FLASH_ATTN_EXT"] || !known["ROPE"] {
		t.Errorf("the library knows %d of %d formulas", len(known), len(names))
	}
}

func spaced[T int32 | int64](numbers []T) string { return strings.Trim(fmt.Sprint(numbers), "[]") }

func randomOp(random *rand.Rand, name string) resource.Op {
	shape := func() (t resource.Tensor) {
		for i := range t.NE {
			t.NE[i] = 1 + random.Int64N(40)
		}
		return t
	}
	op := resource.Op{Name: name, Out: shape()}
	for i := range op.Src[:5] {
		if i < 3 || random.IntN(2) == 0 {
			op.Src[i] = shape()
		}
	}
	for i := range op.Params {
		op.Params[i] = random.Int32N(64)
		if random.IntN(3) == 0 {
			op.Params[i] = 0
		}
	}
	return op
}

// TestInstrumentTexts: whatever bytes a program gives for a name, the line is JSON, and has the text that
// encoding/json makes of them.
func TestInstrumentTexts(t *testing.T) {
	testenv.Slow(t)
	program := testenv.InstrumentAsk(t)
	random := rand.New(rand.NewPCG(3, 4))
	alphabet := []string{"a", "\"", "\\", "\n", "\x01", "\x7f", "\x80", "\xc3", "é", "\xe2\x82", "€", "\xed\xa0\x80",
		"😀", "\xf0\x9f", "\xff", "\u2028", "</script>"}
	var texts []string
	for range 2000 {
		text := ""
		for range random.IntN(15) {
			text += alphabet[random.IntN(len(alphabet))]
		}
		texts = append(texts, text)
	}
	path := filepath.Join(t.TempDir(), "r.jsonl")
	cmd := exec.Command(program, "texts", path)
	cmd.Stdin = strings.NewReader(strings.Join(texts, "\x00") + "\x00")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if err != nil || len(lines) != 2+2*len(texts) {
		t.Fatalf("%d lines: %v", len(lines), err)
	}
	for i, text := range texts {
		event, _ := checkLine(t, lines[2+2*i])
		quoted, err := json.Marshal(text)
		var want string
		if err == nil {
			err = json.Unmarshal(quoted, &want)
		}
		if got := event.(*resource.ComponentEnd).ComponentType; err != nil || got != want {
			t.Errorf("%q became %q, want %q (%v)", text, got, want, err)
		}
	}
}
