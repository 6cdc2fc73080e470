package tensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// python runs a script that reads args and prints JSON into v.
func python(t *testing.T, v any, script string, args ...string) {
	t.Helper()
	interpreter := testenv.NeedPython(t, "numpy")
	cmd := exec.Command(interpreter, append([]string{"-c", script}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(out, v); err != nil {
		t.Fatalf("python printed %q: %v", out, err)
	}
}

// TestNumPyReadsNPY lets NumPy open what cat writes, and compares shape, type, every value and the statistics.
func TestNumPyReadsNPY(t *testing.T) {
	testenv.Once(t)
	testenv.NeedPython(t, "numpy")
	f := fixture{}
	r := f.open(t)
	for _, c := range []struct{ name, shape, dtype string }{
		{"l_out-1", "[5 4]", "float16"}, {"Qcur-0#2", "[5 2 2]", "float16"}, {"kq-0", "[5 3 2]", "float16"},
		{"result_output", "[3 6]", "float16"}, {"w_q-1", "[3 34]", "uint8"},
	} {
		s, err := NewSlice(r, SliceOptions{Tensor: c.name})
		check(t, err)
		name := filepath.Join(t.TempDir(), "x.npy")
		var b bytes.Buffer
		check(t, s.WriteNPY(&b))
		check(t, os.WriteFile(name, b.Bytes(), 0o600))
		var got struct {
			Shape                   []int64
			DType                   string
			C                       bool
			Values                  []float64
			Mean, Std, Min, Max, L2 float64
		}
		python(t, &got, `
import json, sys, numpy as np
a = np.load(sys.argv[1], allow_pickle=False)
f = a.astype(np.float64)
print(json.dumps(dict(shape=a.shape, dtype=str(a.dtype), c=bool(a.flags.c_contiguous), values=f.ravel().tolist(),
    mean=f.mean(), std=f.std(), min=f.min(), max=f.max(), l2=float(np.linalg.norm(f)))))`, name)
		_, _, flat := sliceJSON(t, r, SliceOptions{Tensor: c.name})
		if fmt.Sprint(got.Shape) != c.shape || got.DType != c.dtype || !got.C ||
			fmt.Sprint(got.Values) != fmt.Sprint(flat) {
			t.Errorf("%s: NumPy reads %v %s, C order %v", c.name, got.Shape, got.DType, got.C)
		}
		if c.dtype == "uint8" {
			continue
		}
		sum, err := Summarize(r, Filter{Tensor: c.name})
		check(t, err)
		check(t, MeasureTensors(context.Background(), r, Filter{Tensor: c.name}, sum, nil))
		m := sum.Layers[0].Tensors[0].Stats.Moments
		for what, pair := range map[string][2]float64{
			"mean": {m.Mean, got.Mean}, "std": {m.Std, got.Std}, "min": {m.Min, got.Min}, "max": {m.Max, got.Max},
			"l2": {m.L2, got.L2},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-12*math.Abs(pair[1]) {
				t.Errorf("%s: %s is %v, and NumPy says %v", c.name, what, pair[0], pair[1])
			}
		}
	}
}

// TestAttentionEqualsNumPy compares random maps with grouped heads, mask, cap and sinks with a computation written
// in NumPy's terms.
func TestAttentionEqualsNumPy(t *testing.T) {
	testenv.NeedPython(t, "numpy")
	rng := rand.New(rand.NewPCG(3, 4))
	a := attention{HeadDim: 16, Heads: 6, KVHeads: 2, Tokens: 5, Cells: 12, Scale: 0.25, SoftCap: 5}
	random := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(2 * rng.NormFloat64())
		}
		return values
	}
	a.Q, a.K, a.Sinks = random(16*6*5), random(16*2*12), random(6)
	a.Mask = make([]float32, 12*8)
	for i := range a.Mask {
		if rng.IntN(3) == 0 && i%12 > 0 {
			a.Mask[i] = minusInf
		}
	}
	dir := t.TempDir()
	for name, array := range map[string]struct {
		shape  []int64
		values []float32
	}{
		"q": {[]int64{5, 6, 16}, a.Q}, "k": {[]int64{12, 2, 16}, a.K}, "m": {[]int64{8, 12}, a.Mask},
		"s": {[]int64{6}, a.Sinks},
	} {
		data, err := AppendNPYHeader(nil, "<f4", array.shape)
		check(t, err)
		for _, v := range array.values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		check(t, os.WriteFile(filepath.Join(dir, name+".npy"), data, 0o600))
	}
	var want [][][]float64 // [head][token][cell]
	python(t, &want, `
import json, sys, numpy as np
q, k, m, s = (np.load(f"{sys.argv[1]}/{n}.npy").astype(np.float64) for n in "qkms")
k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
z = np.einsum("thd,chd->htc", q, k) * 0.25
z = 5 * np.tanh(z / 5) + m[None, :q.shape[0]]
z = np.concatenate([z, np.broadcast_to(s[:, None, None], z.shape[:2] + (1,))], axis=2)
e = np.exp(z - z.max(axis=2, keepdims=True))
print(json.dumps((e / e.sum(axis=2, keepdims=True))[:, :, :-1].tolist()))`, dir)
	for head := range a.Heads {
		for token := range a.Tokens {
			closeTo(t, fmt.Sprintf("head %d, token %d", head, token), row(t, a, head, token), want[head][token]...)
		}
	}
}
