//go:build !linux

package rundir

import "os"

// lock does nothing where nothing is recorded.
func lock(string) (*os.File, error) { return nil, nil }

// InUse knows nothing where nothing is recorded.
func InUse(string) (held, known bool) { return false, false }
