//go:build !linux

package bench

import (
	"context"
	"errors"
)

// Run says that there is nothing to measure.
func (HostCost) Run(context.Context) error { return errors.ErrUnsupported }
