//go:build linux

package oracle

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/activations"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
)

// lensTolerance is how far the lens on the last layer may lie from llama.cpp's logits, of their root mean square: with
// F32 that of rounding, with Q8_0 that of the states that llama.cpp quantises before the product.
var lensTolerance = map[gguf.Type]float64{gguf.F32: 1e-6, gguf.Q8_0: 0.02}

// TestLens compares the logit lens on the last layer with the logits that llama.cpp computed in the same run.
func TestLens(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { compareLens(t, testenv.Model(t), gguf.Q8_0) })
	// One of each kind by day: an output matrix of its own, a tied one with a cap, LayerNorm with biases, no attention.
	for _, arch := range archs(t, "llama", "gemma2", "starcoder2", "mamba") {
		for typ := range lensTolerance {
			t.Run(arch+" "+typ.String(), func(t *testing.T) { compareLens(t, synthetic(t, arch, typ, nil), typ) })
		}
	}
}

func compareLens(t *testing.T, model string, typ gguf.Type) {
	tap := append([]string{"--tap-tensor", "l_out*,result_output"}, exact...)
	c := record(t, tap, "-m", model, "-p", "func main() {", "-n", "6", "--temp", "0", "-t", "1")
	run, err := tensors.Open(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	logits := map[int64][]float32{}
	err = tensors.EachTokenRow(context.Background(), run, tensors.Filter{Tensor: "result_output"},
		func(row *tensors.TokenRow) error {
			logits[row.Token] = slices.Clone(row.Values)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	a, err := activations.Analyze(context.Background(), run, activations.Options{Lens: 4})
	if err != nil {
		t.Fatal(err)
	}
	lens := a.Lens
	if lens.Why != "" || lens.Check == nil || lens.Check.Tokens != 4 || lens.Check.NRMSE > lensTolerance[typ] {
		t.Fatalf("%+v, check %+v", lens, lens.Check)
	}
	last := c.meta.Model.NLayer - 1
	if len(lens.Rows) != 4*c.meta.Model.NLayer {
		t.Errorf("%d rows of 4 tokens and %d layers", len(lens.Rows), c.meta.Model.NLayer)
	}
	for _, row := range lens.Rows {
		if row.Layer != last {
			continue
		}
		want, sum, squares := logits[row.Token], 0.0, 0.0
		for _, v := range want {
			sum += math.Exp(float64(v))
			squares += float64(v) * float64(v)
		}
		// any logit may lie as far off as 6 deviations of the mean difference
		off := 6 * lensTolerance[typ] * math.Sqrt(squares/float64(len(want)))
		sorted := slices.Clone(want)
		slices.Sort(sorted)
		for i, token := range row.Top {
			v := float64(want[token.ID])
			if math.Abs(token.Logit-v) > off || math.Abs(token.Probability/(math.Exp(v)/sum)-1) > 3*off ||
				v < float64(sorted[len(sorted)-1-i])-2*off {
				t.Errorf("token %d, place %d: %+v; captured logit %v, probability %v", row.Token, i, token, v,
					math.Exp(v)/sum)
			}
		}
	}
}

// TestUnembed: hidden states that a file has become the logits that llama.cpp computed of them, and rows of the output
// matrix are those of the GGUF file.
func TestUnembed(t *testing.T) {
	for _, arch := range archs(t, "gemma2", "starcoder2") {
		t.Run(arch, func(t *testing.T) {
			model, dir := synthetic(t, arch, gguf.F32, nil), t.TempDir()
			// more rows than share a pass
			line, err := json.Marshal(map[string]any{"prompt": strings.Repeat(prompt, 2)})
			if err != nil {
				t.Fatal(err)
			}
			last := map[bool]string{true: "l_out-3", false: "l_out-1"}[arch == "jamba"]
			c := record(t, append([]string{"--tap-tensor", last + ",result_output"}, exact...), "-m", model, "-t", "1",
				"--prompts", textFile(t, string(line)), "--results", filepath.Join(dir, "results"), "--all-logits",
				"-n", "1")
			var states, logits []float32
			for _, x := range c.tensors(t) {
				if x.Phase.String() != "prefill" {
					continue
				}
				if x.Name == last {
					states = x.values
				} else {
					logits = x.values
				}
			}
			file := filepath.Join(dir, "states.f32")
			writeF32(t, file, states)
			llamatap(t, "unembed", "-m", model, file, "-o", filepath.Join(dir, "logits.f32")).good(t)
			got := readF32(t, filepath.Join(dir, "logits.f32"))
			var wrong, squares float64
			for i := range min(len(got), len(logits)) {
				wrong += math.Pow(float64(got[i]-logits[i]), 2)
				squares += math.Pow(float64(logits[i]), 2)
			}
			if len(got) != len(logits) || len(states) < 40*64 || !(math.Sqrt(wrong/squares) < 1e-6) {
				t.Errorf("%d logits of %d states, %d captured: differ by %v", len(got), len(states), len(logits),
					math.Sqrt(wrong/squares))
			}
			llamatap(t, "unembed", "-m", model, "--rows", "2079,3", "-o", filepath.Join(dir, "rows.f32")).good(t)
			matrix, width := tensorF32(t, model, "token_embd.weight"), len(states)*2080/len(logits)
			if f, err := gguf.Open(model); err == nil {
				if _, ok := f.Tensor("output.weight"); ok {
					matrix = tensorF32(t, model, "output.weight")
				}
			}
			want := slices.Concat(matrix[2079*width:], matrix[3*width:4*width])
			if rows := readF32(t, filepath.Join(dir, "rows.f32")); !slices.Equal(rows, want) {
				t.Errorf("%d values of two rows of the output matrix, want %d", len(rows), len(want))
			}
			writeF32(t, file, states[:width+1])
			for want, args := range map[string][]string{"row 1 has 4 bytes": {file},
				"tokens 0 to 2079": {"--rows", "2080"},
				"no such file":     {filepath.Join(dir, "none")}, "or tokens with --rows": {}} {
				o := llamatap(t, append([]string{"unembed", "-m", model, "-o", filepath.Join(dir, "wrong")},
					args...)...)
				if o.status == 0 || !strings.Contains(o.stderr, want) {
					t.Errorf("%q: status %d, %s", args, o.status, o.stderr)
				}
			}
		})
	}
}

func writeF32(t *testing.T, path string, values []float32) {
	t.Helper()
	var b bytes.Buffer
	if err := errors.Join(binary.Write(&b, binary.LittleEndian, values),
		os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func readF32(t *testing.T, path string) []float32 {
	t.Helper()
	data := content(t, path)
	values := make([]float32, len(data)/4)
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	return values
}
