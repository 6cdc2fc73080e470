//go:build !linux

package memory

import (
	"context"
	"errors"
	"fmt"
)

// Record returns errors.ErrUnsupported.
func Record(context.Context, Options) (Result, error) {
	return Result{}, fmt.Errorf("sampling memory accesses needs Linux: %w", errors.ErrUnsupported)
}
