package tensors

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// pythonReader is the folder of the Python package that reads recordings.
func pythonReader(t *testing.T) string { return filepath.Join(testenv.Root(t), "python") }

// TestPythonReader lets the Python package, which shares no code with this one, read the fixture, and compares names,
// layers, tokens, positions and every value with what cat writes.
func TestPythonReader(t *testing.T) {
	testenv.NeedPython(t, "numpy")
	f := fixture{}
	r := f.open(t)
	type array struct {
		Layer             int
		Tokens, Positions []int64
		Shape             []int64
		Values            []float64
		Mapped            bool
	}
	var got map[string]array
	const collect = `
import json, sys
sys.path.insert(0, sys.argv[1])
import llamatap, numpy as np
found = {}
for t in llamatap.read(sys.argv[2]):
    if t.tokens is not None: found.setdefault(t.name, []).append(t)
def join(part): return np.concatenate([getattr(t, part) for t in part_of]).tolist()
out = {}
for name, part_of in found.items():
    a = np.concatenate([t.array for t in part_of])
    out[name] = dict(layer=-1 if part_of[0].layer is None else part_of[0].layer,
        tokens=join("tokens"), positions=join("positions"), shape=a.shape, values=a.astype(np.float64).ravel().tolist(),
        mapped=not any(t.array.flags.owndata or t.array.flags.writeable for t in part_of))
print(json.dumps(out))`
	python(t, &got, collect, pythonReader(t), filepath.Join(f.dir, rundir.StreamName))
	const inBlocks = "result_output"
	for name, layer := range map[string]int{"l_out-0": 0, "l_out-1": 1, "Qcur-0#2": 0, "kq-0": 0, inBlocks: -1} {
		s, err := NewSlice(r, SliceOptions{Tensor: name})
		check(t, err)
		_, _, values := sliceJSON(t, r, SliceOptions{Tensor: name})
		a := got[name]
		if a.Layer != layer || !equalText(a.Shape, s.Shape) || !equalText(a.Tokens, s.labels()) ||
			!equalText(a.Positions, s.labels()) ||
			!equalText(a.Values, values) || a.Mapped == (name == inBlocks) {
			t.Errorf("%s: Python reads %+v", name, a)
		}
	}
	if len(got) != 5 {
		t.Errorf("Python found %d whole tensors of tokens", len(got))
	}
}

// TestPythonReaderRefuses: what is no stream with an index ends with a line of cause and remedy.
func TestPythonReaderRefuses(t *testing.T) {
	interpreter := testenv.NeedPython(t, "numpy")
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty.stream")
	check(t, os.WriteFile(empty, nil, 0o600))
	for name, args := range map[string][]string{"folder": {folder}, "missing": {filepath.Join(folder, "x.stream")},
		"empty": {empty}, "nothing": nil} {
		cmd := exec.Command(interpreter, append([]string{"-m", "llamatap"}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonReader(t))
		out, err := cmd.CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != 1 ||
			!strings.Contains(string(out), "give RUN/activations.stream") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestPythonReaderTypes compares the element types that the fixture does not have.
func TestPythonReaderTypes(t *testing.T) {
	testenv.NeedPython(t, "numpy")
	for _, dtype := range []codec.DType{codec.F32, codec.BF16} {
		r := exampleCapture(t, stream.Options{DType: dtype})
		var got []float64
		python(t, &got, `
import json, sys
sys.path.insert(0, sys.argv[1])
import llamatap
print(json.dumps([float(v) for t in llamatap.read(sys.argv[2]) for v in t.array.ravel()]))`, pythonReader(t), r.Path)
		_, _, want := sliceJSON(t, r, SliceOptions{Tensor: "l_out-0"})
		// JSON of cat has the shortest digits that distinguish float32 values
		if !equalText(narrowed(got), narrowed(want)) {
			t.Errorf("%v: Python reads %v, cat %v", dtype, got, want)
		}
	}
}

// TestPythonReaderCodecs reads what every codec packed, and compares with what cat reads.
func TestPythonReaderCodecs(t *testing.T) {
	testenv.Once(t, "TestPythonReader")
	testenv.NeedPython(t, "numpy", "pyarrow")
	const fast = "pyarrow, zstandard, lz4" // what unpacks faster, and is hidden where Python can do without
	for id, without := range map[codec.ID][]string{
		codec.None: {fast}, codec.LZ4: {fast, ""}, codec.Zstd: {""}, codec.ZstdShuffle: {""}, codec.Q: {fast},
		codec.QFSE: {fast},
	} {
		for _, dtype := range []codec.DType{codec.F16, codec.F32} {
			if id.Bounded() && dtype != codec.F32 || id == codec.None && dtype != codec.F16 || id == codec.Zstd &&
				dtype != codec.F32 {
				continue
			}
			r := codecCapture(t, stream.Options{Codec: id, DType: dtype})
			for _, alone := range without {
				var got map[string][]float64
				python(t, &got, `
import json, sys
for name in filter(None, sys.argv[3].split(", ")): sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import llamatap
print(json.dumps({t.name: [float(v) for v in t.array.ravel()] for t in llamatap.read(sys.argv[2])}))`,
					pythonReader(t), r.Path, alone)
				for _, name := range []string{"waves", "steps", "rare", "zeros", "short"} {
					_, _, want := sliceJSON(t, r, SliceOptions{Tensor: name})
					if !equalText(narrowed(got[name]), narrowed(want)) {
						t.Errorf("%v, %v: Python reads of %s %.200v, cat %.200v", id, dtype, name, got[name], want)
					}
				}
			}
		}
	}
}

// codecCapture writes tensors that make a codec use all its ways: values that vary, repeat, are rarely large, are
// all zero, are few.
func codecCapture(t *testing.T, o stream.Options) *Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), rundir.StreamName)
	w, err := stream.Create(path, o)
	check(t, err)
	check(t, w.AppendExecution(&stream.Execution{Exec: 1,
		Rows: []label.Row{{Index: 0, Seqs: []int32{0}}, {Index: 1, Seqs: []int32{0}}}}))
	for name, value := range map[string]func(i int) float64{
		"waves": func(i int) float64 { return math.Sin(float64(i)*0.37) * math.Exp(math.Cos(float64(i)*1.7)) },
		"steps": func(i int) float64 { return float64(i / 500) }, "zeros": func(int) float64 { return 0 },
		"rare":  func(i int) float64 { return math.Sin(float64(i)) * math.Pow(10, float64(4*(i%1500/1499))) },
		"short": func(i int) float64 { return float64(i) },
	} {
		n := map[string]int64{"waves": 34_000, "short": 3}[name] // waves: more symbols than a block has
		if n == 0 {
			n = 3_000
		}
		values := make([]float32, 2*n)
		for i := range values {
			values[i] = float32(value(i))
		}
		p := stream.Packet{Name: name, Node: name, Exec: 1, Rows: label.RowsTokens, RowDim: 1, NE: [4]int64{n, 2, 1, 1},
			TokenCount: 2}
		check(t, w.Append(&p, floats(values...), nil))
	}
	check(t, w.Close())
	return mustOpen(t, path)
}

// equalText compares what prints the same: lists of numbers of different types.
func equalText(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func narrowed(values []float64) (out []float32) {
	for _, v := range values {
		out = append(out, float32(v))
	}
	return out
}

// exampleCapture writes a stream of two tokens with one tensor, and opens it.
func exampleCapture(t *testing.T, o stream.Options) *Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), rundir.StreamName)
	w, err := stream.Create(path, o)
	check(t, err)
	e := stream.Execution{Exec: 1, Graph: 1, Phase: label.PhasePrefill}
	for token := range int64(2) {
		e.Rows = append(e.Rows, label.Row{Index: token, Token: 300, Pos: int32(token), Seqs: []int32{0},
			Phase: e.Phase})
	}
	check(t, w.AppendExecution(&e))
	append1(t, w, stream.Packet{Name: "l_out-0", Node: "l_out-0", Op: "ADD", Occurrence: 1, Rows: label.RowsTokens,
		RowDim: 1, Exec: 1,
		Graph: 1, Phase: e.Phase, NE: [4]int64{3, 2, 1, 1}, TokenCount: 2}, []float32{1, -2.5, 3e-5, 70000, 0, 1.0 / 3})
	check(t, w.Close())
	r, err := Open(path)
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}
