package autoencoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// begin returns a trainer and the first batch of rows.
func begin(t testing.TB, rows Rows, e Engine, o Options) (*Trainer, []float32) {
	t.Helper()
	trainer, err := NewTrainer(t.Context(), rows, e, o)
	if err != nil {
		t.Fatal(err)
	}
	var batch []float32
	err = trainer.shuffled(t.Context(), rows, 0, func(row []float32) error {
		for _, v := range row {
			batch = append(batch, v*trainer.scale)
		}
		if len(batch) < o.Batch*len(row) {
			return nil
		}
		return errEnough
	})
	if err != errEnough {
		t.Fatal(err)
	}
	return trainer, batch
}

// TestGradients compares gradients with differences of the loss, which is smooth where no feature changes between
// active and not: so thresholds, whose gradients are those of another loss, are left out.
func TestGradients(t *testing.T) {
	testenv.Once(t, "TestResume")
	for _, arch := range Archs {
		t.Run(arch, func(t *testing.T) {
			o := DefaultOptions(arch)
			o.Features, o.K, o.Batch, o.Bandwidth, o.L1 = 24, 4, 70, 1e-9, 0.3
			trainer, batch := begin(t, newPlanted(10, 16, 2, 200), Plain{}, o)
			random := rand.New(rand.NewPCG(1, 2))
			for i := range trainer.all {
				trainer.all[i] += float32(random.NormFloat64()) * 0.05
			}
			for f := range 6 { // the auxiliary loss has these explain what the others leave, as it is at this point
				trainer.idle[f] = 1000
				trainer.sae.EncoderBias[f] = -50
			}
			trainer.sparsity = 1
			trainer.pass.gradients(batch)
			gradients := append([]float32{}, trainer.gradients...)
			fixed := append([]float32{}, trainer.pass.errors...)
			loss := func() float64 {
				trainer.pass.gradients(batch)
				sum := 0.0
				for r := range o.Batch {
					out := trainer.pass.errors[r*10:][:10]
					back := float64(o.Batch) / 2
					for k := range out {
						v := float64(out[k]) * back
						sum += v * v
						missed := float64(fixed[r*10+k]) * back // a constant of the auxiliary loss
						for i, f := range trainer.pass.revived[r].index {
							along := trainer.sae.Direction(int(f))[k]
							missed += float64(trainer.pass.revived[r].value[i]) * float64(along)
						}
						sum += missed * missed
					}
					if arch == ReLU {
						for _, v := range trainer.pass.active[r].value {
							sum += o.L1 * float64(v)
						}
					}
				}
				return sum / float64(o.Batch)
			}
			worst := 0.0
			for range 60 {
				i := random.IntN(len(trainer.all) - len(trainer.sae.Threshold))
				const h = 1e-3
				before := trainer.all[i]
				trainer.all[i] = before + h
				up := loss()
				trainer.all[i] = before - h
				down := loss()
				trainer.all[i] = before
				want := (up - down) / (2 * h)
				off := math.Abs(float64(gradients[i])-want) / math.Max(1, math.Abs(want))
				worst = max(worst, off)
				if off > 0.03 {
					t.Errorf("parameter %d: gradient %v, want %v", i, gradients[i], want)
				}
			}
			t.Logf("within %.2g", worst)
		})
	}
}

// TestThresholds compares the gradients of thresholds and biases with the straight-through estimator's definition,
// computed for each row and feature in double precision.
func TestThresholds(t *testing.T) {
	o := DefaultOptions(JumpReLU)
	o.Features, o.Batch, o.Bandwidth, o.L0 = 24, 70, 1.5, 3
	trainer, batch := begin(t, newPlanted(10, 16, 2, 200), Plain{}, o)
	trainer.initialiseBias(batch)
	trainer.sparsity = 0.5
	trainer.pass.gradients(batch)
	s, near := trainer.sae, 0
	for f := range s.Features {
		threshold, bias, by := float64(s.Threshold[f]), 0.0, 0.0
		for r := range o.Batch {
			pre, gain := float64(s.EncoderBias[f]), 0.0 // gain: of the loss by the activation
			for k, x := range batch[r*10:][:10] {
				pre += float64(s.Encoder[f*10+k]) * float64(x-s.DecoderBias[k])
				gain += float64(s.Direction(f)[k]) * float64(trainer.pass.errors[r*10+k])
			}
			if pre > threshold {
				bias += gain
			}
			if math.Abs(pre-threshold) < o.Bandwidth/2 {
				slope := (threshold*gain + 0.5*o.L0/float64(o.Batch)) / o.Bandwidth
				by -= slope
				bias += slope
				near++
			}
		}
		if got := float64(trainer.gradient.Threshold[f]); math.Abs(got-by) > 1e-4*max(1, math.Abs(by)) {
			t.Errorf("threshold %d: gradient %v, want %v", f, got, by)
		}
		if got := float64(trainer.gradient.EncoderBias[f]); math.Abs(got-bias) > 1e-4*max(1, math.Abs(bias)) {
			t.Errorf("bias %d: gradient %v, want %v", f, got, bias)
		}
	}
	if near < 20 {
		t.Errorf("%d pre-activations are within the bandwidth", near)
	}
}

func BenchmarkTrain(b *testing.B) {
	for _, arch := range Archs {
		for _, size := range [][2]int{{256, 2048}, {768, 4096}, {2048, 16384}} {
			b.Run(fmt.Sprintf("%s/%d/%d", arch, size[0], size[1]), func(b *testing.B) {
				o := DefaultOptions(arch)
				o.Features = size[1]
				trainer, batch := begin(b, newPlanted(size[0], size[1]/2, 16, 2000), testEngine, o)
				trainer.steps = 1000
				for b.Loop() {
					if err := trainer.train(batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(trainer.operations/1e9/b.Elapsed().Seconds(), "GFLOP/s")
			})
		}
	}
}
