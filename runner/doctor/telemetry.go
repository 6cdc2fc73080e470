package doctor

import (
	"io/fs"
	"strings"
)

// Throttled is how often the control groups of this process have used up their quota of processor time so far;
// known is false where nothing reports it. The root group has no quota, and is never throttled.
func Throttled(root fs.FS) (times uint64, known bool) {
	g, err := groupOf(root, "cpu")
	if err != nil {
		return 0, false
	}
	times, _, seen := throttled(root, g)
	return times, seen || strings.Trim(g.name, "/") == ""
}

// FreeMemory is what new programs can have in bytes: what is available, and not more than the control groups of
// this process leave.
func FreeMemory(root fs.FS) (uint64, error) {
	free, err := available(root)
	if err != nil {
		return 0, err
	}
	if g, err := groupOf(root, "memory"); err == nil {
		if _, left, ok := memoryBound(root, g); ok {
			free = min(free, left)
		}
	}
	return free, nil
}
