//go:build linux

package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestMachineDevice: with all layers on a device, cells, masks, chosen experts and samples are those of the CPU,
// tensors lie in the device's buffers, and ends of graphs are marked as ones that a device may not have reached.
func TestMachineDevice(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	model := synthetic(t, "qwen3moe", gguf.F16, nil)
	args := []string{"-m", model, "-p", prompt, "-n", "4", "--temp", "0", "-t", "1",
		"-c", "512", "-ub", "16", "-no-cnv", "--no-warmup"}
	cpu := watch(t, allOfIt, "llama-completion", append(args, "-dev", "none", "--no-repack")...)
	device := watch(t, allOfIt, "llama-completion", append(args, "--rpc", endpoint, "-ngl", "99",
		"-fit", "off")...) // the model is loaded before anything is recorded
	if len(cpu.execs) != len(device.execs) {
		t.Fatalf("%d executions, %d on the device", len(cpu.execs), len(device.execs))
	}
	for i, e := range device.execs {
		same := cpu.execs[i]
		for k, in := range device.inputs[e.Number] {
			want := cpu.inputs[same.Number][k]
			if in.Kind != want.Kind || !slices.Equal(in.Values, want.Values) || !slices.Equal(in.Ranges, want.Ranges) {
				t.Errorf("execution %d: input %+v, %+v on the CPU", i, in, want)
			}
		}
		if !device.ends[e.Number].Async || len(device.times[e.Number].Nodes) == 0 ||
			len(device.routing[e.Number]) != len(cpu.routing[same.Number]) {
			t.Errorf("execution %d: end %+v, %d times, experts of %d nodes", i, device.ends[e.Number],
				len(device.times[e.Number].Nodes), len(device.routing[e.Number]))
		}
		for node, data := range device.routing[e.Number] {
			if n := device.graphs[e.Graph].Nodes[node]; n.Type == int(gguf.I32) && !slices.Equal(data,
				sameNode(cpu, same.Number, n.Name)) {
				t.Errorf("execution %d: experts of %s differ", i, n.Name)
			}
		}
	}
	if len(device.samples) != len(cpu.samples) || device.samples[0].Token != cpu.samples[0].Token {
		t.Errorf("samples %+v, %+v on the CPU", device.samples, cpu.samples)
	}
	far := 0
	for _, g := range device.graphs {
		for i := range g.Nodes {
			b, ok := device.buffers[g.Nodes[i].Buffer]
			if !ok {
				t.Fatalf("%s lies in buffer %d", g.Nodes[i].Name, g.Nodes[i].Buffer)
			}
			if !b.Host && strings.Contains(b.Type, "RPC0") {
				far++
			}
		}
	}
	if far == 0 {
		t.Errorf("nothing lies on the device: %+v", device.buffers)
	}
	checkMoved(t, model, cpu, device)
}

// checkMoved: each weight went to the device once, the logits of each output came back, and so did what the tap reads
// of experts.
func checkMoved(t *testing.T, model string, cpu, device *witness) {
	t.Helper()
	sent, logits, own, outputs := map[string]int64{}, uint64(0), 0, 0
	for _, m := range device.moved {
		if m.MonoNS < m.BegunNS || m.BegunNS == 0 || device.buffers[m.Buffer].Host {
			t.Errorf("%+v", m)
		}
		switch {
		case m.Own:
			own++
		case !m.Get:
			sent[m.Tensor] += int64(m.Bytes)
		case m.Tensor == "result_output":
			logits += m.Bytes
		default:
			t.Errorf("the program has no use for %+v", m)
		}
	}
	for _, e := range device.execs {
		outputs += len(e.Outputs)
	}
	wantWeights(t, model, sent)
	const vocabulary = 2080
	if want := uint64(outputs * vocabulary * 4); logits != want || want == 0 {
		t.Errorf("logits of %d B came back, want %d", logits, want)
	}
	if own == 0 || len(cpu.moved) > 0 {
		t.Errorf("%d moves for the recording, %d without a device", own, len(cpu.moved))
	}
}

// wantWeights demands that each weight that was sent was sent once, as the file has it.
func wantWeights(t *testing.T, model string, sent map[string]int64) {
	t.Helper()
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, w := range file.Tensors {
		n, ok := sent[w.Name]
		if ok && n != w.Bytes {
			t.Errorf("%s has %d B, and %d were sent", w.Name, w.Bytes, n)
		}
		if ok {
			found++
		}
	}
	if found < len(file.Tensors)-1 { // the table of tokens may stay here
		t.Errorf("%d of %d weights were sent", found, len(file.Tensors))
	}
}

// sameNode finds what a node of a name reported of experts.
func sameNode(w *witness, exec uint64, name string) []byte {
	for _, e := range w.execs {
		if e.Number != exec {
			continue
		}
		for node, data := range w.routing[exec] {
			if w.graphs[e.Graph].Nodes[node].Name == name {
				return data
			}
		}
	}
	return nil
}

// TestDeviceTimes: a graph on a device ends when its scheduler was synchronised first, with no eval callback at
// MINIMAL. Then its time is no longer than the program's own clock says, and holds how long the program waited.
// Micro-batches that are given to it at once have none.
func TestDeviceTimes(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	cmd := command(t, "exec", "--tap-resource-level", "MINIMAL", "--", "llama-completion", "-m", testenv.Model(t),
		"-p", strings.Repeat(prompt, 4), "-n", "12", "--temp", "0", "-t", "1", "-c", "512", "-ub", "32",
		"-no-cnv", "--rpc", endpoint, "-ngl", "99", "--perf")
	run := finish(t, cmd, t.TempDir()).good(t)
	text, err := os.ReadFile(filepath.Join(run.dirs[0], "resource.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	several, decoded, sum := 0, 0, int64(0) // sum in nanoseconds
	var phases map[string]resource.PhaseTotals
	for line := range bytes.Lines(text) {
		event, err := resource.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *resource.Graph:
			if e.Phase == "prefill" && e.DurationNS == nil {
				several++ // micro-batches follow each other without waiting
			}
			if e.Phase != "decode" {
				continue
			}
			if e.DurationNS == nil || e.TimeSource == nil || *e.TimeSource != resource.TimeSync || *e.SyncWaitNS <= 0 ||
				*e.SyncWaitNS >= *e.DurationNS {
				t.Fatalf("%s", line)
			}
			decoded++
			sum += *e.DurationNS
		case *resource.SessionEnd:
			phases = e.Phases
		}
	}
	evaluated := logged(t, run.stderr, `  eval time = +(\d+)\.`)
	if decoded != 11 || several < 3 || len(evaluated) != 1 {
		t.Fatalf("%d graphs decode, %d prefill; %v\n%s", decoded, several, evaluated, run.stderr)
	}
	total := phases["decode"].DurationNS
	if whole := int64(evaluated[0]+1) * 1e6; total < sum || total > whole {
		t.Errorf("%d ns in graphs, %d ns in the phase, of %d ns", sum, total, whole)
	}
	prompts := logged(t, run.stderr, `prompt eval time = +(\d+)\.`)
	if ns := phases["prefill"].DurationNS; ns > int64(prompts[0]+1)*1e6 || ns < sum/int64(decoded) {
		t.Errorf("prefill took %d ns of %d ms", ns, prompts[0])
	}
}
