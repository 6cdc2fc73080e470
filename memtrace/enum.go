package memtrace

import (
	"fmt"
	"slices"
)

// nameOf is the name of a value of an enumeration as written in files.
func nameOf[T ~uint8](v T, names []string, kind string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// parseName is the inverse of nameOf.
func parseName[T ~uint8](name string, names []string, kind string) (T, error) {
	i := slices.Index(names, name)
	if i < 0 {
		known := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" })
		return 0, fmt.Errorf("unknown %s %q: use one of %q", kind, name, known)
	}
	return T(i), nil
}
