//go:build !llama

package peak

import (
	"errors"
	"fmt"
	"time"
)

// Measure needs the build with llama.cpp, which has C in it.
func Measure(int, time.Duration) (perSecond float64, bits int, err error) {
	return 0, 0, fmt.Errorf("measure multiply-adds: %w: built without llama.cpp; 'make build' builds with it",
		errors.ErrUnsupported)
}
