package autoencoder

import (
	"context"
	"errors"
	"math"
	"slices"
	"sort"
	"testing"
)

// activations are those of a row by the definition, in double precision.
func activations(s *SAE, x []float32) []float64 {
	f := make([]float64, s.Features)
	for i := range f {
		f[i] = float64(s.EncoderBias[i])
		for k := range x {
			f[i] += float64(s.Encoder[i*s.Width+k]) * (float64(x[k]) - float64(s.DecoderBias[k]))
		}
		if f[i] <= 0 || s.Arch == JumpReLU && f[i] <= float64(s.Threshold[i]) {
			f[i] = 0
		}
	}
	if s.Arch == TopK {
		sorted := slices.Clone(f)
		sort.Float64s(sorted)
		for i, v := range f {
			if v < sorted[len(f)-s.K] {
				f[i] = 0
			}
		}
	}
	return f
}

// TestEvaluate computes an evaluation anew by the definitions.
func TestEvaluate(t *testing.T) {
	for _, arch := range Archs {
		for _, all := range []bool{false, true} {
			rows := newPlanted(12, 20, 2, 700)
			s := trained(t, arch, rows)
			got, err := Evaluate(t.Context(), s, testEngine, rows, EvaluateOptions{All: all, Contexts: 3})
			if err != nil {
				t.Fatal(err)
			}
			var kept [][]float32
			var tokens []int64
			err = rows.Each(t.Context(), func(r Row) error {
				if all || heldOut(0, 0.3, r.Token) {
					kept, tokens = append(kept, slices.Clone(r.Values)), append(tokens, r.Token)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			mean := make([]float64, s.Width)
			for _, x := range kept {
				for k, v := range x {
					mean[k] += float64(v) / float64(len(kept))
				}
			}
			missed, spread, active := 0.0, 0.0, 0.0
			by := make([][]float64, s.Features)
			for _, x := range kept {
				f := activations(s, x)
				for k, v := range x {
					out := float64(s.DecoderBias[k])
					for i, a := range f {
						out += a * float64(s.Decoder[i*s.Width+k])
					}
					missed += (float64(v) - out) * (float64(v) - out)
					spread += (float64(v) - mean[k]) * (float64(v) - mean[k])
				}
				for i, a := range f {
					by[i] = append(by[i], a)
					if a > 0 {
						active++
					}
				}
			}
			n := float64(len(kept))
			near := func(what string, a, b float64) {
				if math.Abs(a-b) > 1e-4*math.Max(1, math.Abs(b)) {
					t.Errorf("%s, all %v: %s is %v, want %v", arch, all, what, a, b)
				}
			}
			near("rows", float64(got.Rows), n)
			near("explained variance", got.ExplainedVariance, 1-missed/spread)
			near("squared error", got.SquaredError, missed/n)
			near("L0", got.L0, active/n)
			dead := 0
			for i, values := range by {
				f, sum, count := got.Features[i], 0.0, 0.0
				for _, v := range values {
					if sum += v; v > 0 {
						count++
					}
				}
				if count == 0 {
					dead++
				}
				near("density", f.Density, count/n)
				near("mean", f.Mean, sum/max(count, 1))
				near("largest", float64(f.Max), slices.Max(values))
				for c, context := range f.Contexts {
					near("context", float64(context.Activation), values[slices.Index(tokens, context.TokenIndex)])
					if c > 0 && context.Activation > f.Contexts[c-1].Activation {
						t.Error("contexts are not in order")
					}
				}
				if len(f.Contexts) != min(3, int(count)) {
					t.Errorf("%d contexts of %v", len(f.Contexts), count)
				}
			}
			near("dead", float64(got.Dead), float64(dead))
		}
	}
}

func TestEvaluateRefuses(t *testing.T) {
	rows := newPlanted(12, 20, 2, 300)
	s := trained(t, TopK, rows)
	wider := newPlanted(13, 20, 2, 300)
	if _, err := Evaluate(t.Context(), s, Plain{}, wider, EvaluateOptions{}); !errors.Is(err, ErrWidth) {
		t.Error(err)
	}
	s.About.Options.Holdout = 0
	if _, err := Evaluate(t.Context(), s, Plain{}, rows, EvaluateOptions{}); !errors.Is(err, ErrNoRows) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Evaluate(ctx, s, Plain{}, rows, EvaluateOptions{All: true}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
