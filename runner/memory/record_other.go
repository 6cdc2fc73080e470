//go:build !linux

package memory

import (
	"errors"
	"fmt"

	"github.com/llamatap/llamatap/memtrace"
)

// Mark returns errors.ErrUnsupported.
func Mark(string, string) (string, memtrace.Mark, error) {
	return "", memtrace.Mark{}, fmt.Errorf("sampling memory accesses needs Linux: %w", errors.ErrUnsupported)
}
