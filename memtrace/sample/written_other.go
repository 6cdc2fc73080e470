//go:build !linux

package sample

import (
	"errors"
	"fmt"
)

// CanWatch returns errors.ErrUnsupported.
func CanWatch() error {
	return fmt.Errorf("%w: Linux 6.7 or newer is needed: %w", ErrWatch, errors.ErrUnsupported)
}
