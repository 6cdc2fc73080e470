package tensors

import (
	"path"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// matchName reports whether a glob means a packet: by the packet's name or the node's, with the layer suffix or
// without. A glob with a # means one of the nodes of a name: Qcur-0#1 and Qcur#1 are the first.
func matchName(glob, name, node string) bool {
	shown, _, _ := strings.Cut(name, "#")
	candidates := []string{name, node, ggmlhooks.WithoutLayer(node), shown, ggmlhooks.WithoutLayer(shown)}
	if strings.Contains(glob, "#") {
		if !strings.Contains(name, "#") {
			name += "#1"
		}
		candidates = append(candidates, name, generalName(name, node))
	}
	for _, candidate := range candidates {
		if ok, _ := path.Match(glob, candidate); ok {
			return true
		}
	}
	return false
}
