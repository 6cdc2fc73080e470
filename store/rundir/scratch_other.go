//go:build !linux

package rundir

import (
	"errors"
	"os"
)

func nameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// lockState does nothing where nothing is recorded.
func lockState(string) bool { return true }
