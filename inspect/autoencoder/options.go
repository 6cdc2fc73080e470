package autoencoder

import (
	"fmt"
	"slices"
	"strings"
)

// Options say how an autoencoder is trained. They are stored with a checkpoint. Coefficients are of activations whose
// mean length is the square root of their width, and of squared errors that are summed over the width, as in SAELens.
type Options struct {
	Arch     string  `json:"arch"`
	Features int     `json:"features"`
	K        int     `json:"k,omitempty"`  // of TopK
	L1       float64 `json:"l1,omitempty"` // of ReLU: penalty of the sum of activations
	L0       float64 `json:"l0,omitempty"` // of JumpReLU: penalty of the number of active features

	// Bandwidth is the width of the interval around the thresholds of JumpReLU in which they have gradients.
	Bandwidth float64 `json:"bandwidth,omitempty"`
	Rate      float64 `json:"learning_rate"`
	Batch     int     `json:"batch"` // rows of a step
	Epochs    int     `json:"epochs"`
	Seed      uint64  `json:"seed"`
	// BufferBytes bounds the rows among which the next ones are drawn.
	BufferBytes int64 `json:"buffer_bytes"`
	// Holdout is the share of the rows that training never sees.
	Holdout float64 `json:"holdout"`
	// DeadSteps is after how many steps without activation a feature is dead: it then learns what the others miss.
	DeadSteps int     `json:"dead_steps"`
	Aux       float64 `json:"aux"` // weight of that loss; 0 is none

	// MaxBytes bounds the memory of training; 0 does not.
	MaxBytes int64 `json:"-"`
}

// DefaultOptions are those of an architecture; what they have for others does not count.
func DefaultOptions(arch string) Options {
	return Options{Arch: arch, K: 32, L1: 1, L0: 1, Bandwidth: 2, Rate: 1e-3, Batch: 1024, Epochs: 1,
		BufferBytes: 256 << 20, Holdout: 0.05, DeadSteps: 200, Aux: 1}
}

// Check reports what is wrong with the options.
func (o *Options) Check() error {
	switch {
	case !slices.Contains(Archs, o.Arch):
		return fmt.Errorf("architecture %q: use %s", o.Arch, strings.Join(Archs, ", "))
	case o.Features < 1 || o.Features > 1<<20:
		return fmt.Errorf("%d features: give a number from 1 to %d, such as 8 times the width of the activations",
			o.Features, 1<<20)
	case o.Arch == TopK && (o.K < 1 || o.K > o.Features):
		return fmt.Errorf("k is %d: give a number of active features from 1 to %d", o.K, o.Features)
	case o.Batch < 1 || o.Batch > 1<<20 || o.Epochs < 1:
		return fmt.Errorf("%d rows in a batch, %d epochs: give at least 1 of both, and at most %d rows", o.Batch,
			o.Epochs, 1<<20)
	case !(o.Rate > 0 && o.Rate <= 1) || o.DeadSteps < 1:
		return fmt.Errorf("learning rate %v, dead after %d steps: give a rate above 0 such as 0.001, and steps from 1",
			o.Rate, o.DeadSteps)
	case !(o.L1 >= 0) || !(o.L0 >= 0) || !(o.Aux >= 0) || o.Arch == JumpReLU && !(o.Bandwidth > 0):
		return fmt.Errorf("penalties %v, %v, %v, bandwidth %v: give numbers from 0, and a bandwidth above 0", o.L1,
			o.L0, o.Aux, o.Bandwidth)
	case !(o.Holdout >= 0 && o.Holdout < 1) || o.BufferBytes < 0:
		return fmt.Errorf("held-out share %v, buffer of %d bytes: give a share from 0 to below 1 and a size from 0",
			o.Holdout, o.BufferBytes)
	}
	return nil
}
