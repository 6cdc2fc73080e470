package autoencoder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrDiverged occurs when the loss is not a number any more.
var ErrDiverged = errors.New("the training diverged: give a smaller learning rate")

// Progress is how far training is, and how well the last step's rows were explained.
type Progress struct {
	Step, Steps       int
	Loss              float64
	L0                float64 // active features per row
	ExplainedVariance float64
	Dead              float64       // share of the features
	Operations        float64       // floating-point operations of all steps of this process
	Elapsed           time.Duration // of these steps
}

// Trainer trains one autoencoder. It belongs to one goroutine; each step computes on all processors.
type Trainer struct {
	Options
	// Progress is called after each step, where it is set.
	Progress func(Progress)

	sae    *SAE // of activations times scale
	engine Engine
	stats  Stats

	all, moment1, moment2 []float32 // parameters, and Adam's moments
	gradient              *SAE
	gradients             []float32
	idle                  []int32 // steps since each feature was active
	step, steps           int
	scale                 float32
	pass                  *pass
	sparsity              float64 // share of the penalty that counts in this step
	began                 time.Time
	operations            float64
}

// NewTrainer returns a trainer for rows, all of which it reads once to learn their number and scale.
func NewTrainer(ctx context.Context, rows Rows, e Engine, o Options) (*Trainer, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	stats, err := measure(ctx, rows, o)
	if err != nil {
		return nil, err
	}
	if n := o.bytes(stats.Width); o.MaxBytes > 0 && n > o.MaxBytes {
		return nil, fmt.Errorf("training %d features of %d values takes %d MiB of memory, and %d MiB are free: give "+
			"fewer --features, a smaller --batch or --buffer-mb", o.Features, stats.Width, n>>20, o.MaxBytes>>20)
	}
	t := newTrainer(stats, e, o)
	if t.steps == 0 {
		return nil, fmt.Errorf("%d rows in %d epochs are less than a batch of %d: record more, or give more epochs or "+
			"a smaller batch", stats.Rows, o.Epochs, o.Batch)
	}
	t.initialise()
	return t, nil
}

// newTrainer returns a trainer whose parameters are 0.
func newTrainer(stats *Stats, e Engine, o Options) *Trainer {
	t := &Trainer{Options: o, engine: e, stats: *stats, steps: int(stats.Rows * int64(o.Epochs) / int64(o.Batch))}
	t.scale = float32(math.Sqrt(float64(stats.Width)) / stats.Norm)
	t.sae, t.all = newSAE(o.Arch, stats.Width, o.Features, o.K)
	t.gradient, t.gradients = newSAE(o.Arch, stats.Width, o.Features, o.K)
	t.moment1, t.moment2 = make([]float32, len(t.all)), make([]float32, len(t.all))
	t.idle = make([]int32, o.Features)
	t.pass = newPass(t)
	return t
}

// initialise draws directions, and has the encoder look for the same ones.
func (t *Trainer) initialise() {
	s, random := t.sae, rand.New(rand.NewPCG(t.Seed, 0x5ae))
	for i := range s.Decoder {
		s.Decoder[i] = float32(random.NormFloat64())
	}
	for f := range s.Features {
		normalise(s.Direction(f))
	}
	copy(s.Encoder, s.Decoder)
	for i, mean := range t.stats.Mean {
		s.DecoderBias[i] = float32(mean) * t.scale
	}
	for f := range s.Threshold {
		s.Threshold[f] = float32(t.Bandwidth / 2)
	}
}

// quantile is how many standard deviations above its mean a pre-activation is positive at first: in one row of 44, if
// it is distributed normally.
const quantile = 2

// initialiseBias sets the encoder's bias so that features of ReLU and JumpReLU are seldom active from the first step on
// (as Anthropic's update of January 2025 does): half of them would be otherwise.
func (t *Trainer) initialiseBias(batch []float32) {
	s := t.sae
	sum, squares := make([]float64, s.Features), make([]float64, s.Features)
	c := s.encoder(t.engine)
	for block := range slices.Chunk(batch, blockRows*s.Width) {
		block = slices.Clone(block)
		for i := range block {
			block[i] -= s.DecoderBias[i%s.Width]
		}
		c.preactivate(block)
		for i, v := range c.pre[:len(block)/s.Width*s.Features] {
			sum[i%s.Features] += float64(v)
			squares[i%s.Features] += float64(v) * float64(v)
		}
	}
	for f := range sum {
		mean, square := sum[f]/float64(t.Batch), squares[f]/float64(t.Batch)
		s.EncoderBias[f] = -float32(mean + quantile*math.Sqrt(max(square-mean*mean, 0)))
	}
}

// Direction is the decoder's row of a feature.
func (s *SAE) Direction(f int) []float32 { return s.Decoder[f*s.Width:][:s.Width] }

// normalise makes a row as long as 1.
func normalise(row []float32) {
	sum := 0.0
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	if sum == 0 {
		return
	}
	by := float32(1 / math.Sqrt(sum))
	for i := range row {
		row[i] *= by
	}
}

// Run trains until all steps are done, or the context is. A trainer that was interrupted resumes with Run.
func (t *Trainer) Run(ctx context.Context, rows Rows) error {
	t.began, t.operations = time.Now(), 0
	var batch []float32
	first := int64(t.step) * int64(t.Batch)
	for epoch := first / t.stats.Rows; t.step < t.steps; epoch++ {
		skip := max(first-epoch*t.stats.Rows, 0)
		err := t.shuffled(ctx, rows, uint64(epoch), func(row []float32) error {
			if skip--; skip >= 0 {
				return nil
			}
			if t.step == t.steps {
				return errEnough
			}
			for _, v := range row {
				batch = append(batch, v*t.scale)
			}
			if len(batch) < t.Batch*t.sae.Width {
				return nil
			}
			err := t.train(batch)
			batch = batch[:0]
			if err == nil {
				err = ctx.Err()
			}
			return err
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	return nil
}

// errEnough ends reading.
var errEnough = errors.New("enough rows")

// The shares of the steps in which the learning rate grows from 0 at first, in which the penalty of activity does, and
// in which the rate falls to 0 at the end.
const (
	rateWarmUp    = 0.05
	penaltyWarmUp = 0.2
	rateDecay     = 0.2
)

// rampShare returns how far a step is through the first share of all steps, from above 0 to 1.
func (t *Trainer) rampShare(step int, share float64) float64 {
	return min(1, float64(step+1)/max(1, share*float64(t.steps)))
}

// train does a step: gradients of a batch, and Adam.
func (t *Trainer) train(batch []float32) error {
	if t.step == 0 && t.Arch != TopK {
		t.initialiseBias(batch)
	}
	t.sparsity = t.rampShare(t.step, penaltyWarmUp)
	clear(t.gradients)
	sum := t.pass.gradients(batch)
	p := Progress{Step: t.step + 1, Steps: t.steps, Loss: sum.loss / float64(t.Batch),
		L0: float64(sum.active) / float64(t.Batch), ExplainedVariance: 1 - sum.squares/sum.variance}
	if math.IsNaN(p.Loss) || math.IsInf(p.Loss, 0) {
		return fmt.Errorf("step %d: %w than %v", p.Step, ErrDiverged, t.Rate)
	}
	t.update(t.Rate * min(t.rampShare(t.step, rateWarmUp), t.rampShare(t.steps-1-t.step, rateDecay)))
	t.step++
	t.operations += sum.operations
	for _, steps := range t.idle {
		if int(steps) > t.DeadSteps {
			p.Dead += 1 / float64(len(t.idle))
		}
	}
	if t.Progress != nil {
		p.Operations, p.Elapsed = t.operations, time.Since(t.began)
		t.Progress(p)
	}
	return nil
}

// update moves the parameters against their gradients. A direction keeps its length: what of its gradient lies along it
// does not count.
func (t *Trainer) update(rate float64) {
	n := float64(t.step + 1)
	step := float32(rate / (1 - math.Pow(Beta1, n)))
	correct := float32(1 / (1 - math.Pow(Beta2, n)))
	s, g := t.sae, t.gradient
	width, matrix := s.Width, s.Width*s.Features
	const chunk = 64 // features
	parallel(workers(), (s.Features+chunk-1)/chunk, func(_, i int) {
		for f := i * chunk; f < min((i+1)*chunk, s.Features); f++ {
			direction, gradient := s.Direction(f), g.Direction(f)
			along := float32(0)
			for k, v := range direction {
				along += v * gradient[k]
			}
			for k, v := range direction {
				gradient[k] -= along * v
			}
			t.adam(f*width, (f+1)*width, step, correct)
			t.adam(matrix+f*width, matrix+(f+1)*width, step, correct)
			normalise(direction)
		}
	})
	t.adam(2*matrix, len(t.all), step, correct)
	for f, v := range s.Threshold {
		s.Threshold[f] = max(v, 0)
	}
}

// adam updates the parameters from first to before end.
func (t *Trainer) adam(first, end int, step, correct float32) {
	t.engine.Adam(t.all[first:end], t.gradients[first:end], t.moment1[first:end], t.moment2[first:end], step, correct)
}

// bytes returns how much memory training takes, but for lists of what is active.
func (o *Options) bytes(width int) int64 {
	parameters := int64(2*width+3) * int64(o.Features)
	rows := int64(min(o.Batch, max(maxPassValues/o.Features, blockRows)))
	return o.BufferBytes + 16*parameters + 4*int64(width)*(3*rows+int64(o.Batch)) +
		int64(workers())*4*int64(o.Features)*(blockRows+1)
}

// FileBytes is how much room the autoencoder and a checkpoint take on a disk, or little less.
func (t *Trainer) FileBytes() int64 {
	const parameter, mean, idle, rest = 4 + 3*4, 32, 12, 16 << 10
	return parameter*int64(len(t.all)) + mean*int64(t.stats.Width) + idle*int64(t.Features) + rest
}

// SAE returns the autoencoder as it is now, for activations as they were captured: the scale is folded into biases and
// thresholds, so that an activation is a length in the captured space. about says what the rows are.
func (t *Trainer) SAE(about About) *SAE {
	s, all := newSAE(t.Arch, t.sae.Width, t.sae.Features, t.K)
	copy(all, t.all)
	for _, values := range [][]float32{s.EncoderBias, s.DecoderBias, s.Threshold} {
		for i := range values {
			values[i] /= t.scale
		}
	}
	about.Options, about.Rows, about.Held = &t.Options, t.stats.Rows, t.stats.Held
	about.Steps, about.Engine = t.step, t.engine.Name()
	s.About = about
	return s
}
