package activations

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestPicture draws analyses of every shape, in every form: many layers and tokens, one of each, layers that lack
// tokens, opposite layers, values that are not finite, words of the lens.
func TestPicture(t *testing.T) {
	testenv.Once(t)
	random := rand.New(rand.NewPCG(1, 3))
	many := make([]matrix, 40)
	for i := range many {
		many[i] = normal(random, 60, 8)
	}
	opposite := []matrix{normal(random, 8, 4), nil}
	for _, row := range opposite[0] {
		turned := make([]float32, len(row))
		for i, v := range row {
			turned[i] = -v
		}
		opposite[1] = append(opposite[1], turned)
	}
	opposite[1][0], opposite[1][1], opposite[1][2] = nil, nil, nil
	broken := []matrix{normal(random, 4, 4), normal(random, 4, 4)}
	for k := range broken[1] {
		for i := range broken[1][k] {
			broken[1][k][i] = float32(math.NaN())
		}
	}
	for name, layers := range map[string][]matrix{"many": many, "one": {normal(random, 2, 4)}, "opposite": opposite,
		"broken": broken} {
		a, err := Analyze(context.Background(), record(t, layers), Options{})
		check(t, err)
		a.Lens = &Lens{}
		for _, x := range a.Tensors {
			for i := range x.Rows {
				a.Lens.Rows = append(a.Lens.Rows, &LensRow{Tensor: x.Name, Layer: x.Layer, Token: x.Rows[i].Token,
					Top: []LensToken{{Text: "a long token\n with <&>", Probability: float64(i%5) / 4}}})
			}
		}
		for _, form := range sheet.Forms {
			path := filepath.Join(t.TempDir(), name+"."+form)
			check(t, a.Picture().Save(path))
			if info, err := os.Stat(path); err != nil || info.Size() < 5000 {
				t.Errorf("%s: %v %v", path, info, err)
			}
			if keep := os.Getenv("LLAMATAP_PICTURES"); keep != "" {
				data, _ := os.ReadFile(path)
				check(t, os.WriteFile(filepath.Join(keep, filepath.Base(path)), data, 0o600))
			}
		}
	}
}
