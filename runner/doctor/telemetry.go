package doctor

import (
	"io/fs"
	"strings"
)

// Throttled is how often the control groups of this process have used up their quota of processor time so far;
// known is false where nothing reports it. The root group has no quota, and is never throttled.
func Throttled(root fs.FS) (times uint64, known bool) {
	m, err := membership(root, "cpu")
	if err != nil {
		return 0, false
	}
	times, _, seen := throttled(root, m)
	return times, seen || strings.Trim(m.Name, "/") == ""
}

// FreeMemory is what new programs can have in bytes: what is available, and not more than the control groups of
// this process leave.
func FreeMemory(root fs.FS) (uint64, error) {
	free, err := available(root)
	if err != nil {
		return 0, err
	}
	if m, err := membership(root, "memory"); err == nil {
		_, left, _ := memoryBound(root, m.Groups(root))
		free = min(free, left)
	}
	return free, nil
}
