//go:build !linux

package main

import "errors"

// roomFor is not known where nothing is recorded.
func roomFor(string) (int64, error) { return 0, errors.ErrUnsupported }
