//go:build !linux

package runner

import "runtime"

// Cores is the number of processors; only Linux reports how many of them share a core.
func Cores() int { return runtime.NumCPU() }
