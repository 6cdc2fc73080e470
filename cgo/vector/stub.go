//go:build !llama

package vector

import (
	"errors"
	"fmt"
	"time"
)

// Kernel computes with C, which this build lacks.
type Kernel int

// New needs the build with llama.cpp, which has C in it.
func New() (Kernel, error) {
	return 0, fmt.Errorf("multiply matrices with vectors: %w: built without llama.cpp; 'make build' builds with it",
		errors.ErrUnsupported)
}

// Name is the name of the kernel.
func (Kernel) Name() string { return "none" }

// Products is never called: New fails.
func (Kernel) Products([]float32, []float32, []float32, int, int, int) {}

// AddRows is never called: New fails.
func (Kernel) AddRows([]float32, []float32, []int32, []float32) {}

// Dots is never called: New fails.
func (Kernel) Dots([]float32, []int32, []float32, []float32) {}

// Adam is never called: New fails.
func (Kernel) Adam([]float32, []float32, []float32, []float32, float32, float32) {}

// Peak needs the build with llama.cpp, which has C in it.
func Peak(int, time.Duration) (perSecond float64, bits int, err error) {
	return 0, 0, fmt.Errorf("measure multiply-adds: %w: built without llama.cpp; 'make build' builds with it",
		errors.ErrUnsupported)
}
