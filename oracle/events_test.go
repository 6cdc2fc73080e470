//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/oplog"
	"github.com/llamatap/llamatap/store/rundir"
)

// recorded is what a recorder of events wrote of a run, and what the tap had reported to it.
type recorded struct {
	*witness
	compute map[uint64][]*resource.Compute // by execution
	graphs  map[uint64]*resource.Graph
	kinds   map[resource.Kind]int
	routing map[uint64]int
}

// everyone hands what the tap reports to several sinks.
type everyone []ggmlhooks.Sink

func (e everyone) each(f func(ggmlhooks.Sink) error) (err error) {
	for _, s := range e {
		err = errors.Join(err, f(s))
	}
	return err
}

func (e everyone) Context(v *ggmlhooks.Context) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Context(v) })
}
func (e everyone) Graph(v *ggmlhooks.Graph) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Graph(v) })
}
func (e everyone) Call(v *ggmlhooks.Call) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Call(v) })
}
func (e everyone) Exec(v *ggmlhooks.Exec) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Exec(v) })
}
func (e everyone) ExecEnd(v ggmlhooks.ExecEnd) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.ExecEnd(v) })
}
func (e everyone) Resolve(v ggmlhooks.Resolve) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Resolve(v) })
}
func (e everyone) Buffer(v *ggmlhooks.Buffer) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Buffer(v) })
}
func (e everyone) Times(v *ggmlhooks.Times) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Times(v) })
}
func (e everyone) Input(v *ggmlhooks.Input) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Input(v) })
}
func (e everyone) Sample(v *ggmlhooks.Sample) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Sample(v) })
}
func (e everyone) Sync(v ggmlhooks.Sync) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Sync(v) })
}
func (e everyone) Moved(v *ggmlhooks.Moved) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Moved(v) })
}

func (e everyone) Served(v *ggmlhooks.Served) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.Served(v) })
}
func (e everyone) SeqChange(v *ggmlhooks.SeqChange) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.SeqChange(v) })
}
func (e everyone) BufferEnd(v ggmlhooks.BufferEnd) error {
	return e.each(func(s ggmlhooks.Sink) error { return s.BufferEnd(v) })
}
func (e everyone) Capture(v *ggmlhooks.Capture) error {
	defer v.Release()
	lent := *v
	lent.Release = func() {}
	return e.each(func(s ggmlhooks.Sink) error { return s.Capture(&lent) })
}

func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// recordAt runs llama-completion and records its events at a level.
func recordAt(t *testing.T, level resource.Level, model string, args ...string) *recorded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resource.jsonl")
	r, err := oplog.NewRecorder(oplog.Options{
		Level: level, Now: monotonic, SessionID: "run", Lines: rundir.LineOptions{Name: path,
			Create: func(name string) (io.WriteCloser, error) { return os.Create(name) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := track.NewRecorder(track.Options{Operation: r.KV})
	if err != nil {
		t.Fatal(err)
	}
	got := &recorded{newWitness(), map[uint64][]*resource.Compute{}, map[uint64]*resource.Graph{},
		map[resource.Kind]int{}, map[uint64]int{}}
	machine := collect.Machine{}
	switch level {
	case resource.Detailed:
		machine = collect.Machine{Looking: ggmlhooks.LookRanges, LookEvery: 1, Routing: true, Cells: true}
	case resource.Verbose:
		machine = allOfIt
	}
	cmd := testenv.NeedTool(t, "llama-completion").Command(append([]string{"-m", model, "-p", "One two three four",
		"-n", "5", "-no-cnv", "--temp", "0", "-t", "2", "-fa", "on", "-c", "512"}, args...)...)
	cmd.Args[1] += ":" + filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	assembler := ggmlhooks.NewAssembler(0, cells, r)
	watchSink(t, machine, everyone{got.witness, assembler}, cmd)
	if err := assembler.Close(); err != nil {
		t.Fatal(err)
	}
	got.read(t, path)
	return got
}

// read takes the lines in. None may have a key that its struct does not have.
func (w *recorded) read(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		event, err := resource.Decode(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		strict := json.NewDecoder(bytes.NewReader(line))
		strict.DisallowUnknownFields()
		if err := strict.Decode(event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		checkSchema(t, line)
		switch e := event.(type) {
		case *resource.Compute:
			if w.kinds[e.Event]++; e.Within == "" { // else its time and work are those of a range or graph
				w.compute[e.Exec] = append(w.compute[e.Exec], e)
			}
		case *resource.Graph:
			w.graphs[e.Exec] = e
			w.kinds[e.Event]++
		case *resource.Routing:
			w.routing[e.Exec]++
			w.kinds[e.Event]++
		default:
			var head resource.Header
			if err := json.Unmarshal(line, &head); err != nil {
				t.Fatal(err)
			}
			w.kinds[head.Event]++
		}
	}
}

// weights is what the matrices of a model multiply per token, and their bytes: experts by the share that is chosen.
// It reads the file.
func weights(t *testing.T, path string) (params, size int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.ReadBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	arch, _ := f.Metadata.Text("general.architecture")
	used, _ := f.Metadata.Int(arch + ".expert_used_count")
	for i := range f.Tensors {
		x := &f.Tensors[i]
		table := x.Name == "token_embd.weight" && slices.ContainsFunc(f.Tensors,
			func(t gguf.Tensor) bool { return t.Name == "output.weight" }) || x.Name == "position_embd.weight"
		// a gate is a matrix of one row
		vector := x.Values() == x.RowValues() && !strings.HasSuffix(x.Name, "_shexp.weight")
		if vector || table || strings.Contains(x.Name, "ssm_conv1d") || strings.Contains(x.Name, "ssm_a") ||
			strings.HasSuffix(x.Name, ".bias") {
			continue // a vector, a table to look rows up in, and what is no matrix
		}
		n := x.Values()
		if strings.Contains(x.Name, "_exps.") {
			n = n / int64(x.Shape[2]) * int64(used)
		}
		row, err := x.Type.RowBytes(x.RowValues())
		if err != nil {
			t.Fatal(err)
		}
		params += n
		size += row * (n / x.RowValues())
	}
	return params, size
}

// sparse are the architectures that choose experts.
var sparse = map[string]bool{"qwen3moe": true, "qwen2moe": true, "mixtral": true, "gpt-oss": true, "jamba": true}

// TestEventsOfModels: of dense, sparse and recurrent models, matrices do 2 FLOPs per parameter and token, and each
// of their bytes is read once per generated token; K and V are written as wide as they are; times lie inside of
// their graphs; at no level is work counted twice.
func TestEventsOfModels(t *testing.T) {
	for _, arch := range archs(t, "llama", "qwen3moe", "mamba") {
		model := synthetic(t, arch, gguf.Q8_0, nil)
		params, size := weights(t, model)
		for _, level := range []resource.Level{resource.Minimal, resource.Detailed, resource.Verbose} {
			w := recordAt(t, level, model)
			decoded := 0
			for exec, g := range w.graphs {
				events, flops, ns, nodes := w.compute[exec], int64(0), int64(0), 0
				for _, c := range events {
					flops += *c.FLOPs
					nodes += c.NodeCount
					if c.DurationNS == nil {
						t.Fatalf("%s, %v: no time: %+v", arch, level, c)
					}
					ns += *c.DurationNS
				}
				if flops != *g.FLOPs || nodes != g.NodeCount || g.OpsWithoutFLOPs != 0 || ns > *g.DurationNS {
					t.Errorf("%s, %v, execution %d: %d FLOPs in %d nodes and %d ns; its graph %d in %d and %d, %d "+
						"ops without FLOPs",
						arch, level, exec, flops, nodes, ns, *g.FLOPs, g.NodeCount, *g.DurationNS, g.OpsWithoutFLOPs)
				}
				if g.Phase == "decode" && level == resource.Verbose {
					decoded++
					w.checkDecode(t, arch, exec, params, size)
				}
			}
			if level == resource.Verbose && decoded != 4 {
				t.Errorf("%s: %d tokens were generated", arch, decoded)
			}
			w.checkKinds(t, arch, level, sparse[arch])
		}
	}
}

// checkDecode compares an execution of one token with the closed formulas.
func (w *recorded) checkDecode(t *testing.T, arch string, exec uint64, params, size int64) {
	t.Helper()
	g := w.witness.graphs[w.graphs[exec].Graph]
	flops, read, cache, attention := int64(0), int64(0), int64(0), int64(0)
	for _, c := range w.compute[exec] {
		if c.NodeCount != 1 {
			t.Fatalf("%s: several nodes at VERBOSE: %+v", arch, c)
		}
		n := &g.Nodes[c.OpSeq]
		switch c.Operation {
		case "mul_mat", "mul_mat_id":
			flops += *c.FLOPs
			read += *c.BytesRead
			for k := 1; k < len(n.Src); k++ {
				read -= shown(g, n.Src[k]) * 4
			}
		case "set_rows":
			cache += *c.BytesWritten
		case "flash_attn_ext":
			attention++
			q, v := source(g, n.Src[0]), source(g, n.Src[2])
			perCell, perRow := 2*q[0]+2*v[0]+5+2, v[0]+1
			if n.OpParams[2] != 0 { // soft cap
				perCell += 2
			}
			if len(n.Src) == 5 { // sinks
				perRow += 4
			}
			if want := q[2] * (v[1]*perCell + perRow); *c.FLOPs != want {
				t.Errorf("%s: attention of %v over %v: %d FLOPs, want %d", arch, q, v, *c.FLOPs, want)
			}
		}
	}
	if flops != 2*params || read != size {
		t.Errorf("%s: matrices do %d FLOPs and read %d bytes per token; %d parameters in %d bytes", arch, flops, read,
			params, size)
	}
	kv, layers := int64(0), int64(0)
	for i := range g.Leafs {
		if l := &g.Leafs[i]; strings.HasPrefix(l.Name, "cache_k_l") {
			kv += l.NE[0] * 2
			layers++
		} else if strings.HasPrefix(l.Name, "cache_v_l") {
			kv += l.NE[0] * 2
		}
	}
	if cache != kv || (kv == 0) != (arch == "mamba") || attention != layers {
		t.Errorf("%s: %d bytes of K and V are written per token, %d in rows of the caches; %d attentions", arch, cache,
			kv, attention)
	}
}

func source(g *ggmlhooks.Graph, src int32) [4]int64 {
	if src < 0 {
		return g.Leafs[-1-src].NE
	}
	return g.Nodes[src].NE
}

// shown is the elements of a source.
func shown(g *ggmlhooks.Graph, src int32) int64 {
	ne := source(g, src)
	return ne[0] * ne[1] * ne[2] * ne[3]
}

// checkKinds demands the kinds of events that a run has at a level.
func (w *recorded) checkKinds(t *testing.T, arch string, level resource.Level, sparse bool) {
	t.Helper()
	for k := range resource.Kinds() {
		kind := resource.Kind(k)
		want := level.Includes(kind)
		switch kind {
		case resource.KindLoss, resource.KindLevel, resource.KindGPU, resource.KindRAPL, resource.KindEnergy,
			resource.KindRequestEnergy, resource.KindGraphEnergy:
			want = false
		case resource.KindRouting:
			want = want && sparse
		case resource.KindMLP:
			want = want && arch != "mamba"
		}
		if (w.kinds[kind] > 0) != want {
			t.Errorf("%s, %v: %d events %v", arch, level, w.kinds[kind], kind)
		}
	}
}
