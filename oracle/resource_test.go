//go:build linux

package oracle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// eventsOf reads a file of events; every line must be one.
func eventsOf(t *testing.T, path string) (events []any) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, 1<<20)
	for n := 1; scan.Scan(); n++ {
		e, err := resource.Decode(scan.Bytes())
		if err != nil {
			t.Fatalf("%s:%d: %v: %.200s", path, n, err, scan.Text())
		}
		events = append(events, e)
	}
	return events
}

// of picks the events of one kind.
func of[T any](events []any) (picked []*T) {
	for _, e := range events {
		if v, ok := e.(*T); ok {
			picked = append(picked, v)
		}
	}
	return picked
}

// TestResourceLevels: the text is that of the run without the tap, at every level; every level records its kinds and
// no others; times of nodes fit into those of their graphs, and operations into all of them.
func TestResourceLevels(t *testing.T) {
	plain := llamatap(t, slices.Concat([]string{"run"}, generate(12))...).good(t)
	for level, perToken := range map[string][2]int{"MINIMAL": {40, 60}, "DETAILED": {100, 220}, "VERBOSE": {180, 320}} {
		o := llamatap(t, slices.Concat([]string{"run", "--tap-resource-level", level}, generate(12))...).good(t)
		if o.stdout != plain.stdout || len(o.dirs) != 1 {
			t.Fatalf("%s: %d run directories, text %q, not %q\n%s", level, len(o.dirs), o.stdout,
				plain.stdout, o.stderr)
		}
		if v := verifyJSON(t, o.dirs[0]); !v.OK || !v.Sealed {
			t.Errorf("%s: %+v", level, v)
		}
		if _, err := os.Stat(filepath.Join(o.dirs[0], "activations.stream")); err == nil {
			t.Errorf("%s: a stream that nobody asked for", level)
		}
		events := eventsOf(t, filepath.Join(o.dirs[0], "resource.jsonl"))
		graphs := of[resource.Graph](events)
		if n := len(events) / len(graphs); len(graphs) != 13 || n < perToken[0] || n > perToken[1] {
			t.Errorf("%s: %d events of %d graphs", level, len(events), len(graphs))
		}
		parsed, err := resource.ParseLevel(level)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]bool{}
		for _, e := range events {
			kinds[fmt.Sprintf("%T", e)] = true
		}
		for i := range resource.Kinds() {
			if k := resource.Kind(i); kinds[fmt.Sprintf("%T", resource.New(k))] && !parsed.Includes(k) {
				t.Errorf("%s records %v", level, k)
			}
		}
		sums := map[uint64]int64{}
		nodes := map[uint64]int{}
		for _, c := range of[resource.Compute](events) {
			if c.DurationNS != nil {
				sums[c.Exec] += *c.DurationNS
			}
			nodes[c.Exec] += c.NodeCount
		}
		for _, g := range graphs {
			if g.DurationNS == nil || sums[g.Exec] > *g.DurationNS || sums[g.Exec] < *g.DurationNS/2 ||
				nodes[g.Exec] != g.NodeCount {
				t.Errorf("%s: execution %d took %v ns, its %d nodes %d ns, of %d nodes", level, g.Exec, g.DurationNS,
					nodes[g.Exec], sums[g.Exec], g.NodeCount)
			}
		}
	}
}

// TestResourceLevelChanges: commands and signals change the level from the next graph on, and each change is an event.
func TestResourceLevelChanges(t *testing.T) {
	// what is in the ring is logged before a command is answered
	l := alive(t, "--tap-resource-level", "MINIMAL", "--tap-memory", "8M", "--tap-resource-rate", "2000")
	steps := []struct {
		do   func()
		want resource.Level
	}{
		{func() { ctl(t, l.out, "level", "VERBOSE") }, resource.Verbose},
		{func() { ctl(t, l.out, "disable") }, resource.Off},
		{func() { ctl(t, l.out, "enable") }, resource.Verbose},
		{func() { l.cmd.Process.Signal(syscall.SIGUSR2) }, resource.Off},
		{func() { l.cmd.Process.Signal(syscall.SIGUSR1) }, resource.Minimal},
		{func() { l.cmd.Process.Signal(syscall.SIGUSR1) }, resource.Detailed},
	}
	for i, step := range steps {
		step.do()
		want := step.want.String()
		if step.want == resource.Off {
			want = ""
		}
		testenv.Until(t, fmt.Sprintf("change %d to %v comes into effect", i, step.want), func() bool {
			now := ctl(t, l.out, "status").Status
			return now.Level == want && now.First != nil
		})
	}
	ctl(t, l.out, "stop")
	l.cmd.Process.Signal(syscall.SIGTERM)
	l.cmd.Wait()
	dirs := runDirs(t, l.out)
	events := eventsOf(t, filepath.Join(dirs[0], "resource.jsonl"))
	var got []resource.Level
	level := resource.Minimal
	for _, e := range events {
		switch e := e.(type) {
		case *resource.LevelChange:
			level = e.Level
			got = append(got, level)
		case *resource.LayerBegin:
			if !level.Includes(resource.KindLayerBegin) {
				t.Fatalf("a layer is recorded at %v", level)
			}
		}
	}
	for i, step := range steps {
		if i >= len(got) || got[i] != step.want {
			t.Fatalf("levels %v, change %d should be to %v", got, i, step.want)
		}
	}
	if m := metadata(t, dirs[0]); len(m.Changes) < len(steps) || m.Changes[0].Level != "VERBOSE" {
		t.Errorf("changes %+v", m.Changes)
	}
}

// TestResourceVariables: the variables of LLaMA Resource Instrumentation mean here what they meant there.
func TestResourceVariables(t *testing.T) {
	log := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(log, []byte("{\"event\":\"phase\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(environ ...string) outcome {
		cmd := command(t, slices.Concat([]string{"run"}, generate(3))...)
		cmd.Env = append(cmd.Environ(), environ...)
		return finish(t, cmd, t.TempDir())
	}
	o := run("LLAMA_RESOURCE_LOG_LEVEL=detailed", "LLAMA_RESOURCE_LOG_PATH="+log).good(t)
	own, err := os.ReadFile(filepath.Join(o.dirs[0], "resource.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if other, err := os.ReadFile(log); err != nil || string(other) != "{\"event\":\"phase\"}\n"+string(own) {
		t.Errorf("%d bytes of events, %d in the file that was asked for: %v", len(own), len(other), err)
	}
	if o := run("LLAMA_RESOURCE_LOG_LEVEL=detailed", "LLAMA_RESOURCE_DISABLED=1").good(t); len(o.dirs) != 0 {
		t.Errorf("%d runs were recorded though that was disabled", len(o.dirs))
	}
	if o := llamatap(t, slices.Concat([]string{"run", "--tap-resource-level", "VERBOSE", "--tap-kv"},
		generate(3))...).good(t); !hasEvents(o.dirs[0]) {
		t.Error("no events without the variable")
	}
	t.Run("flag", func(t *testing.T) { // the variable wins over it
		t.Setenv("LLAMA_RESOURCE_DISABLED", "1")
		if o := llamatap(t, slices.Concat([]string{"run", "--tap-resource-level", "VERBOSE", "--tap-kv"},
			generate(3))...).good(t); hasEvents(o.dirs[0]) {
			t.Error("events were recorded though that was disabled")
		}
	})
	if o := run("LLAMA_RESOURCE_LOG_LEVEL=loud"); o.status != 2 || !oneLine(o.stderr, "LLAMA_RESOURCE_LOG_LEVEL",
		"MINIMAL, DETAILED, VERBOSE") {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
	if o := run("LLAMA_RESOURCE_LOG_LEVEL=MINIMAL", "LLAMA_RESOURCE_LOG_PATH="+t.TempDir()); !strings.Contains(o.stderr,
		"is a directory") || !strings.Contains(o.stderr, "LLAMA_RESOURCE_LOG_PATH") {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
}

func hasEvents(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "resource.jsonl"))
	return err == nil
}

// TestSystemBRecipes runs the three recipes of LLaMA Resource Instrumentation's documentation, and holds what they
// return against the GGUF file and the graphs: memory by layer, work by layer, and peaks of feed-forward networks.
// Levels log what that documentation promises.
func TestSystemBRecipes(t *testing.T) {
	jq := testenv.NeedJQ(t)
	model := testenv.Model(t)
	weights, layers := weightsByLayer(t, model)
	for level, ops := range map[string][]string{"MINIMAL": {"mul_mat"}, "DETAILED": {"mul_mat", "rms_norm", "swiglu"},
		"VERBOSE": {"mul_mat", "rms_norm", "swiglu", "add", "rope"}} {
		o := llamatap(t, slices.Concat([]string{"run", "--tap-resource-level", level}, generate(6))...).good(t)
		log := filepath.Join(o.dirs[0], "resource.jsonl")
		ask := func(filter string, rows any) {
			t.Helper()
			out, err := exec.Command(jq, "-s", filter, log).Output()
			if err == nil {
				err = json.Unmarshal(out, rows)
			}
			if err != nil {
				t.Fatalf("%s: %v", filter, err)
			}
		}
		type row struct {
			Layer int     `json:"layer_id"`
			Sum   float64 `json:"sum"`
		}
		var memory, work, peaks []row
		ask(`[.[] | select(.event == "memory_allocation") | {layer_id, mb: .allocation_size_mb}]
			| group_by(.layer_id) | map({layer_id: .[0].layer_id, sum: (map(.mb) | add)})`, &memory)
		ask(`[.[] | select(.event == "compute_execution") | {layer_id, g: .compute_intensity_gflops}]
			| group_by(.layer_id) | map({layer_id: .[0].layer_id, sum: (map(.g) | add)})`, &work)
		ask(`[.[] | select(.event == "mlp_operation")] | group_by(.layer_id)
			| map({layer_id: .[0].layer_id, sum: (map(.activation_memory_peak_mb) | max)})`, &peaks)
		if level != "MINIMAL" { // which logs allocations from 1 MiB on
			for _, r := range memory {
				if want := weights[r.Layer] / (1 << 20); r.Layer >= 0 && math.Abs(r.Sum/want-1) > 1e-4 {
					t.Errorf("%s: layer %d has %g MiB of weights, its file %g", level, r.Layer, r.Sum, want)
				}
			}
			if len(memory) != layers+1 || len(peaks) != layers || peaks[0].Sum <= 0 {
				t.Errorf("%s: memory %v, peaks %v of %d layers", level, memory, peaks, layers)
			}
		}
		events := eventsOf(t, log)
		var flops, said float64
		for _, g := range of[resource.Graph](events) {
			flops += float64(*g.FLOPs)
		}
		for _, r := range work {
			said += r.Sum
		}
		if len(work) != layers+1 || math.Abs(said*1e9/flops-1) > 1e-4 {
			t.Errorf("%s: %v: %g GFLOP of %g", level, work, said, flops/1e9)
		}
		seen := map[string]bool{}
		for _, c := range of[resource.Compute](events) {
			if c.OutputShape != nil {
				seen[c.Operation] = len(c.InputTensors) > 0
			}
			if c.Within != "" && c.DurationNS != nil {
				t.Fatalf("an op within a %s has a time of its own: %+v", c.Within, c)
			}
		}
		for _, op := range []string{"mul_mat", "rms_norm", "swiglu", "add", "rope"} {
			if seen[op] != slices.Contains(ops, op) {
				t.Errorf("%s: %s logged: %v", level, op, seen[op])
			}
		}
		for _, m := range of[resource.MLP](events) {
			if m.Operation == "down_proj" && m.ActivationShape[0] == m.WeightShape[0] {
				t.Errorf("the activation of a projection is its input: %+v", m)
			}
		}
		passes := slices.ContainsFunc(of[resource.Handoff](events),
			func(h *resource.Handoff) bool { return h.FromComponent == "attention" && h.ToComponent == "mlp" })
		if passes != (level != "MINIMAL") {
			t.Errorf("%s: attention hands over to mlp: %v", level, passes)
		}
	}
}

// weightsByLayer is the bytes of the tensors of each layer of a GGUF file, and how many layers it has.
func weightsByLayer(t *testing.T, path string) (bytes map[int]float64, layers int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Read(strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	bytes = map[int]float64{}
	for i := range f.Tensors {
		x := &f.Tensors[i]
		row, err := x.Type.RowBytes(x.RowValues())
		if err != nil {
			t.Fatal(err)
		}
		layer := ggmlhooks.WeightLayer(x.Name)
		bytes[layer] += float64(row * (x.Values() / x.RowValues()))
		layers = max(layers, layer+1)
	}
	return bytes, layers
}

// TestResourceDiskFull fills the disk while events are written: the model goes on to its end, and what is missing
// is reported.
func TestResourceDiskFull(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedRoot(t)
	plain := llamatap(t, slices.Concat([]string{"run"}, generate(40))...).good(t)
	for _, kib := range []int{600, 1500, 3000} {
		disk := smallDisk(t, fmt.Sprint(kib, "k"))
		o := llamatapIn(t, disk, slices.Concat([]string{"run", "--tap-resource-level", "VERBOSE", "--tap-kv",
			"--tap-min-free", "0"}, generate(40))...)
		if o.status != 3 || o.stdout != plain.stdout {
			t.Errorf("%d KiB: status %d, text %q\n%s", kib, o.status, o.stdout, o.stderr)
		}
		if !strings.Contains(o.stderr, "LOST") && !strings.Contains(o.stderr, "disk") {
			t.Errorf("%d KiB: no loss is reported:\n%s", kib, o.stderr)
		}
		for _, dir := range o.dirs {
			text, err := os.ReadFile(filepath.Join(dir, "resource.jsonl"))
			if err != nil {
				continue
			}
			lines := strings.Split(string(text), "\n")
			for i, line := range lines[:len(lines)-1] { // the last may be cut
				if _, err := resource.Decode([]byte(line)); err != nil {
					t.Errorf("%d KiB: line %d: %v", kib, i+1, err)
				}
			}
		}
	}
}
