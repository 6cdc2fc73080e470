//go:build !llama

package nvml

import (
	"errors"
	"fmt"
)

// Library is never opened in this build.
type Library struct{}

// Open needs the build with llama.cpp, which has C in it.
func Open(string) (*Library, error) {
	return nil, fmt.Errorf("open NVML: %w: built without llama.cpp; 'make build' builds with it", errors.ErrUnsupported)
}

// Close does nothing.
func (*Library) Close() error { return nil }

// Devices is 0.
func (*Library) Devices() (int, error) { return 0, nil }

// Read fails.
func (*Library) Read(int, Sample, bool) (Sample, error) { return Sample{}, errors.ErrUnsupported }
