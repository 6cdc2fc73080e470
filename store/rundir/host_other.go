//go:build !linux

package rundir

import "runtime"

// ThisHost describes the machine, as far as it tells.
func ThisHost() Host { return Host{OS: runtime.GOOS, Cores: runtime.NumCPU()} }
