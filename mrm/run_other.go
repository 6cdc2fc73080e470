//go:build !linux

package mrm

import (
	"context"
	"errors"
	"fmt"
)

// Run is for Linux, where recordings are made.
func (e *Experiment) Run(context.Context, []int) (Outcome, error) {
	return Outcome{},
		fmt.Errorf("experiments are run on Linux: %w; validate, plan and the reading of results work here",
			errors.ErrUnsupported)
}
