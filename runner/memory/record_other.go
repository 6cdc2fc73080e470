//go:build !linux

package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/llamatap/llamatap/memtrace"
)

// Mark returns errors.ErrUnsupported.
func Mark(string, string) (string, memtrace.Mark, error) {
	return "", memtrace.Mark{}, fmt.Errorf("sampling memory accesses needs Linux: %w", errors.ErrUnsupported)
}

// Record returns errors.ErrUnsupported.
func Record(context.Context, Options) (Result, error) {
	return Result{}, fmt.Errorf("sampling memory accesses needs Linux: %w", errors.ErrUnsupported)
}
