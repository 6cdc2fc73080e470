//go:build !linux

package rundir

import "runtime"

// ThisHost describes the machine; unknown fields are empty.
func ThisHost() Host { return Host{OS: runtime.GOOS, Cores: runtime.NumCPU()} }
