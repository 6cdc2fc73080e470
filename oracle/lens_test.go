//go:build linux

package oracle

import (
	"context"
	"math"
	"slices"
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
