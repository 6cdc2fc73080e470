package activations

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

// TestPromptOrder: prompts keep the order in which they begin, also where a later one ends first.
func TestPromptOrder(t *testing.T) {
	r := recordSequences(t, func(token int) int { return []int{0, 1, 1, 0}[token] }, []matrix{{{10}, {11}, {12}, {13}}})
	for all, want := range map[bool][][]float64{false: {{13}, {12}}, true: {{10}, {13}, {11}, {12}}} {
		got, err := promptRows(context.Background(), r, all)
		check(t, err)
		if !reflect.DeepEqual(got[0], want) {
			t.Errorf("all %v: rows are %v, want %v", all, got[0], want)
		}
	}
}

// TestDirections: of two runs that differ by a planted direction both methods find it, and its file is read as it was
// written.
func TestDirections(t *testing.T) {
	const tokens, width = 40, 64
	random := rand.New(rand.NewPCG(3, 4))
	planted := normal(random, 1, width)[0]
	with, without := make([]matrix, 4), make([]matrix, 4)
	for layer := range with {
		with[layer], without[layer] = normal(random, tokens, width), normal(random, tokens, width)
		for i := range tokens {
			for k := range width {
				with[layer][i][k] += float32(layer) * (3 + float32(i%3)) * planted[k]
			}
		}
	}
	a, b := record(t, with), record(t, without)
	for _, o := range []DirectionOptions{{All: true}, {All: true, Raw: true}, {All: true, Method: Principal},
		{Raw: true}} { // the last one is of the last token alone
		v, err := Directions(context.Background(), a, b, o)
		check(t, err)
		if len(v.Directions) != 3 || v.Layers != 4 || v.Width() != width {
			t.Fatalf("%+v: %d layers of %d, %d values", o, len(v.Directions), v.Layers, v.Width())
		}
		for layer, row := range v.Directions {
			var dot, size float64
			for k, x := range row {
				dot += float64(x) * float64(planted[k])
				size += float64(planted[k]) * float64(planted[k])
				from := 0
				if !o.All {
					from = tokens - 1
				}
				want := 0.0
				for i := from; i < tokens; i++ {
					want += float64(with[layer][i][k]-without[layer][i][k]) / float64(tokens-from)
				}
				if o.Raw && math.Abs(float64(x)-want) > 0.01 { // the fixture stores F16
					t.Errorf("%+v, layer %d: value %d is %v, want %v", o, layer, k, x, want)
				}
			}
			if cosine := dot / v.Norm(layer) / math.Sqrt(size); o.All && cosine < 0.98 {
				t.Errorf("%+v, layer %d: cosine %v with what was planted", o, layer, cosine)
			}
			if !o.Raw && math.Abs(v.Norm(layer)-1) > 1e-5 {
				t.Errorf("%+v, layer %d: length %v", o, layer, v.Norm(layer))
			}
		}
		v.Model = "llama"
		path := filepath.Join(t.TempDir(), "v.gguf")
		file, err := os.Create(path)
		check(t, err)
		check(t, v.Write(file))
		check(t, file.Close())
		if back, err := gguf.OpenControlVector(path); err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%+v: read as %+v, %v", o, back, err)
		}
	}
	for what, c := range map[string]struct {
		without []matrix
		o       DirectionOptions
		want    error
	}{
		"other counts": {[]matrix{without[0][:20], without[1][:20]}, DirectionOptions{All: true, Method: Principal},
			nil},
		"other widths":  {[]matrix{normal(random, tokens, 32), normal(random, tokens, 32)}, DirectionOptions{}, nil},
		"no difference": {with, DirectionOptions{}, nil},
		"no layer":      {without[:1], DirectionOptions{}, ErrNoPairs},
		"length of pca": {without, DirectionOptions{Method: Principal, Raw: true}, ErrNoRaw},
	} {
		if v, err := Directions(context.Background(), a, record(t, c.without), c.o); err == nil ||
			c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", what, v, err)
		}
	}
}
