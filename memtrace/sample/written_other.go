//go:build !linux

package sample

import (
	"errors"
	"fmt"
)

// Written needs Linux.
type Written struct{}

// Watch returns errors.ErrUnsupported.
func Watch(int) (*Written, error) {
	return nil, fmt.Errorf("%w: Linux 6.7 or newer is needed: %w", ErrWatch, errors.ErrUnsupported)
}

// Add watches nothing.
func (w *Written) Add(Range) error { return errors.ErrUnsupported }

// Scan finds nothing.
func (w *Written) Scan(dst []Range, _ Range) ([]Range, error) { return dst, errors.ErrUnsupported }

// Close does nothing.
func (w *Written) Close() error { return nil }

// CanWatch returns errors.ErrUnsupported.
func CanWatch() error {
	return fmt.Errorf("%w: Linux 6.7 or newer is needed: %w", ErrWatch, errors.ErrUnsupported)
}
