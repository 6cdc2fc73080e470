package label

import (
	"fmt"
	"slices"
	"strings"
)

// Names are the names of a type's values as written in files.
type Names[T ~uint8] struct {
	What string   // what has such a name, for errors, such as "phase"
	All  []string // by value; "" where a value has none
	Use  string   // what an error says to do; "": to use one of All
}

// Text is the name of v, or What with its number where this version does not know it.
func (n *Names[T]) Text(v T) string {
	if int(v) < len(n.All) {
		return n.All[v]
	}
	return fmt.Sprintf("%s(%d)", strings.ReplaceAll(n.What, " ", "_"), uint8(v))
}

// Parse is the inverse of Text for values that have a name.
func (n *Names[T]) Parse(name string) (T, error) {
	if i := slices.Index(n.All, name); i >= 0 && name != "" {
		return T(i), nil
	}
	use := n.Use
	if use == "" {
		use = fmt.Sprintf("use one of %v", n.All)
	}
	return 0, fmt.Errorf("unknown %s %q: %s", n.What, name, use)
}

// Unmarshal sets *v to what parse reads in text, and leaves it as it is where that fails.
func Unmarshal[T any](v *T, text []byte, parse func(string) (T, error)) error {
	parsed, err := parse(string(text))
	if err == nil {
		*v = parsed
	}
	return err
}
