package autoencoder

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// testEngine is the fastest engine of this build.
var testEngine Engine = Plain{}

// planted are rows that are sums of few directions of a dictionary, with random weights.
type planted struct {
	width, features, active, rows int
	dictionary                    []float32
}

func newPlanted(width, features, active, rows int) *planted {
	p := &planted{width, features, active, rows, make([]float32, width*features)}
	r := rand.New(rand.NewPCG(7, 7))
	for i := range p.dictionary {
		p.dictionary[i] = float32(r.NormFloat64())
	}
	for f := range features {
		normalise(p.dictionary[f*width:][:width])
	}
	return p
}

func (p *planted) Each(ctx context.Context, fn func(Row) error) error {
	r := rand.New(rand.NewPCG(8, 8))
	row := make([]float32, p.width)
	for n := range p.rows {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		clear(row)
		for range p.active {
			weight := float32(1 + r.Float64())
			for k, v := range p.dictionary[r.IntN(p.features)*p.width:][:p.width] {
				row[k] += weight * v
			}
		}
		if err := fn(Row{Values: row, Token: int64(n)}); err != nil {
			return err
		}
	}
	return nil
}

// recovered is the share of the planted directions that some feature has, with a cosine of at least 0.95.
func (p *planted) recovered(s *SAE) float64 {
	found := 0
	for f := range p.features {
		best := 0.0
		for g := range s.Features {
			cosine := 0.0
			for k, v := range s.Direction(g) {
				cosine += float64(v) * float64(p.dictionary[f*p.width+k])
			}
			best = math.Max(best, cosine)
		}
		if best >= 0.95 {
			found++
		}
	}
	return float64(found) / float64(p.features)
}

// recoverPlanted trains, and demands that 90 % of what was planted is found, and next to nothing of it before training.
func recoverPlanted(t *testing.T, p *planted, o Options) {
	trainer, err := NewTrainer(t.Context(), p, testEngine, o)
	if err != nil {
		t.Fatal(err)
	}
	if share := p.recovered(trainer.SAE(About{})); share > 0.1 {
		t.Fatalf("%.0f %% are found before training: the test shows nothing", 100*share)
	}
	var last Progress
	trainer.Progress = func(now Progress) { last = now }
	if err := trainer.Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	share := p.recovered(trainer.SAE(About{}))
	t.Logf("%.1f %% recovered; L0 %.1f of %d, explained variance %.3f, dead %.2f", 100*share, last.L0, p.active,
		last.ExplainedVariance, last.Dead)
	if share < 0.9 {
		t.Errorf("%.0f %% recovered, want 90 %%", 100*share)
	}
}

// TestPlanted recovers the directions that rows are made of.
func TestPlanted(t *testing.T) {
	testenv.Once(t, "TestResume")
	for _, arch := range testenv.ByDay(Archs, 1) {
		t.Run(arch, func(t *testing.T) {
			o := DefaultOptions(arch)
			o.Features, o.K, o.Batch, o.Epochs, o.Rate, o.DeadSteps = 96, 3, 256, 4, 3e-3, 50
			recoverPlanted(t, newPlanted(32, 64, 3, 40_000), o)
		})
	}
}

// TestPlantedLarge is TestPlanted with 1,024 directions of 256 values, five in a row.
func TestPlantedLarge(t *testing.T) {
	testenv.Slow(t) // up to a minute for each architecture
	for _, arch := range Archs {
		t.Run(arch, func(t *testing.T) {
			o := DefaultOptions(arch)
			o.Features, o.K, o.L1, o.L0, o.Bandwidth = 1280, 5, 3, 3, 4
			o.Batch, o.Epochs, o.Rate, o.DeadSteps = 512, 3, 3e-3, 100
			if arch == JumpReLU {
				o.Rate = 2e-3
			}
			recoverPlanted(t, newPlanted(256, 1024, 5, 150_000), o)
		})
	}
}
