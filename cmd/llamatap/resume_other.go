//go:build !linux

package main

import (
	"errors"

	"github.com/llamatap/llamatap/config"
)

// resumption is nothing where nothing is recorded.
type resumption struct{ args []string }

func findResumption(tap *config.Tap, _, _ []string) (*resumption, error) {
	if tap.Resuming() != "" {
		return nil, errors.ErrUnsupported
	}
	return nil, nil
}

func (r *resumption) check(*config.Tap, *config.Run) error { return errors.ErrUnsupported }
