//go:build !linux

package runner

import "math"

// room is unknown here, and taken to be enough.
func room(string) int64 { return math.MaxInt64 }
