//go:build !linux

package rundir

import "os"

// Lock does nothing where nothing is recorded.
func Lock(string) (*os.File, error) { return nil, nil }

// InUse knows nothing where nothing is recorded.
func InUse(string) (held, known bool) { return false, false }
