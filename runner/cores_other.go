//go:build !linux

package runner

import "runtime"

// cores is the number of processors; only Linux tells how many of them share a core.
func cores() int { return runtime.NumCPU() }
