package activations

import (
	"fmt"
	"strings"
)

// maxListed is how many names of what was left out a text has.
const maxListed = 4

// left names what was left out.
func (a *Analysis) left() string {
	names := a.Left
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}
